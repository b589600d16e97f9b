// Rotary positions in double (Su et al., arXiv 2104.09864; rotate-half form of Llama).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// The frequency scaling of Llama 3.1.
struct Llama3Scaling {
  double factor;
  double low_freq_factor;
  double high_freq_factor;
  double original_max_positions;
};

// Returns theta^(-2i / rotary_dim), [rotary_dim / 2]. Scaling works as in
// `_compute_llama3_parameters` of Hugging Face transformers: frequencies whose wavelength is above
// original / low are divided by the factor, frequencies with a wavelength below original / high are
// kept, and the others are a linear blend.
std::vector<double> InverseFrequencies(int64_t rotary_dim, double theta,
                                       const std::optional<Llama3Scaling>& scaling);

// Rotates one head [head_dim] at `position`. The pairs are (i, i + n) for n =
// inverse_frequencies.size(); features from 2n on stay unchanged.
void Rotate(std::span<double> head, std::span<const double> inverse_frequencies, int64_t position);

}  // namespace sluice::kernels::reference
