#include "kernels/reference/rope.h"

#include <cmath>
#include <numbers>

namespace sluice::kernels::reference {
namespace {

double Scale(double frequency, const Llama3Scaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > s.original_max_positions / s.low_freq_factor) return frequency / s.factor;
  if (wavelength < s.original_max_positions / s.high_freq_factor) return frequency;
  const double smooth = (s.original_max_positions / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

std::vector<double> InverseFrequencies(int64_t rotary_dim, double theta,
                                       const std::optional<Llama3Scaling>& scaling) {
  std::vector<double> out;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const double frequency =
        std::pow(theta, -static_cast<double>(i) / static_cast<double>(rotary_dim));
    out.push_back(scaling ? Scale(frequency, *scaling) : frequency);
  }
  return out;
}

void Rotate(std::span<double> head, std::span<const double> inverse_frequencies, int64_t position) {
  const size_t half = inverse_frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * inverse_frequencies[i];
    const double a = head[i], b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = b * std::cos(angle) + a * std::sin(angle);
  }
}

}  // namespace sluice::kernels::reference
