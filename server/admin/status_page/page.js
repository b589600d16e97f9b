// ---- the page ----
function showDaemon({version, phase, uptime, device, profile, policy, failed_models: failed}) {
  byId('phase').className = `phase ${phase}`;
  byId('phase').textContent = phase;
  byId('daemon').textContent = [version, device, profile, policy, `up ${age(uptime)}`].join(' · ');
  byId('problem').textContent = failed.length === 0 ? '' :
      `The last load failed: ${failed.join(', ')}. The log, sluice doctor and sluice models have the reason.`;
}
function showChoice(models) {
  const same = byId('models').children.length === models.length &&
      models.every((model, i) => byId('models').children[i].dataset.key === keyOf(model));
  if (!same) {
    byId('models').replaceChildren(...models.map(model => {
      const button = element('button', {type: 'button', 'data-key': keyOf(model)}, `${model.name} version ${model.version}`);
      button.addEventListener('click', () => { chosen = keyOf(model); show(latest); });
      return button;
    }));
  }
  for (const button of byId('models').children) button.setAttribute('aria-pressed', String(button.dataset.key === chosen));
}
let latest = null;
function show(status) {
  latest = status;
  showDaemon(status.daemon);
  const model = status.models.find(m => keyOf(m) === chosen) || status.models[0];
  chosen = model ? keyOf(model) : null;
  showChoice(status.models);
  byId('tiles').replaceChildren(...(model ? tiles(model, status.daemon) : refusalTiles(status.daemon)));
  byId('cards').replaceChildren(...(model ? cards(model) : [card('whole', 'No model is ready yet', 'A model appears when it is loaded and warmed up.')]));
}
async function renew() {
  try {
    const answer = await fetch('status.json', {signal: AbortSignal.timeout(5 * kPeriodMs)});
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const status = await answer.json();
    remember(status);
    show(status);
    document.body.classList.remove('stale');
  } catch (error) {
    document.body.classList.add('stale');
    byId('phase').className = 'phase lost';
    byId('phase').textContent = 'no answer';
  }
  setTimeout(renew, kPeriodMs);
}
renew();
