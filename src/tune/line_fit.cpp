#include "tulle/tune/line_fit.hpp"

#include <cassert>
#include <cmath>
#include <limits>
#include <optional>

namespace tulle {
namespace {

double relative_error(const LineFit& line, std::span<const TransferTime> times) {
  double sum = 0;
  for (const TransferTime& time : times) {
    sum += std::abs(line.alpha_seconds + line.beta_seconds_per_byte * time.bytes - time.seconds) / time.seconds;
  }
  return sum;
}

std::optional<LineFit> line_through(const TransferTime& a, const TransferTime& b) {
  if (a.bytes == b.bytes) return std::nullopt;
  const double slope = (b.seconds - a.seconds) / (b.bytes - a.bytes);
  const LineFit line{a.seconds - slope * a.bytes, slope};
  if (line.alpha_seconds < 0 || line.beta_seconds_per_byte < 0) return std::nullopt;
  return line;
}

}  // namespace

LineFit fit_line(std::span<const TransferTime> times) {
  assert(!times.empty());
  LineFit best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const std::optional<LineFit>& line) {
    if (!line) return;
    const double error = relative_error(*line, times);
    if (error >= least) return;
    least = error;
    best = *line;
  };
  for (const TransferTime& a : times) {
    consider(LineFit{a.seconds, 0});
    if (a.bytes > 0) consider(LineFit{0, a.seconds / a.bytes});
    for (const TransferTime& b : times) consider(line_through(a, b));
  }
  return best;
}

}  // namespace tulle
