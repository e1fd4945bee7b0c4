#include "gradient/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tulle/comm/control.hpp"

namespace tulle::gradient {
namespace {

// What a rank sends in the best dense sum, for each value.
double dense_bytes(double values, int ranks) { return 2.0 * (ranks - 1) / ranks * values * sizeof(float); }

}  // namespace

void Totals::add(const Parameter& parameter, const ParameterStats& stats) {
  finished += 1;
  if (stats.step > last_step) steps += 1;
  last_step = std::max(last_step, stats.step);
  values += static_cast<double>(parameter.size);
  delivered += static_cast<double>(stats.delivered);
  bytes_sent += static_cast<double>(stats.bytes_sent);
  accumulate_seconds += stats.accumulate_seconds;
  select_seconds += stats.select_seconds;
  encode_seconds += stats.encode_seconds;
  decode_seconds += stats.decode_seconds;
  mask_seconds += stats.mask_seconds;
  wait_seconds += stats.wait_seconds;
  apply_seconds += stats.apply_seconds;
}

Task<std::string> report_of(Communicator& control, const Recipe& recipe, const Totals& totals,
                            double whole_step_seconds) {
  const double busy = totals.accumulate_seconds + totals.select_seconds + totals.encode_seconds +
                      totals.decode_seconds + totals.mask_seconds + totals.apply_seconds;
  // Whoever computes longest is waited for by the others.
  const std::array mine = {totals.bytes_sent,     totals.wait_seconds,   totals.accumulate_seconds,
                           totals.select_seconds, totals.apply_seconds,  busy,
                           totals.encode_seconds, totals.decode_seconds, totals.mask_seconds};
  Request<std::vector<double>> combining = icombine(control, mine, Op::max());
  const std::vector<double> most = co_await combining;
  const std::array candidates = {busy == most[5] ? -static_cast<double>(control.rank()) : -1e9};
  Request<std::vector<double>> choosing = icombine(control, candidates, Op::max());
  const std::vector<double> slowest = co_await choosing;
  const double dense = dense_bytes(totals.values, control.size());
  std::string text = fmt::format("recipe           {}\n", to_string(recipe));
  text += fmt::format("exchanges        {} of {:.4g} values, on {} ranks\n", totals.finished, totals.values,
                      control.size());
  text += fmt::format("delivered        {:.4g} % of the values\n",
                      totals.values > 0 ? 100 * totals.delivered / totals.values : 0.0);
  text += fmt::format("bytes sent       {:.4g} by the rank that sent most; dense {:.4g}: {:.4g} times more\n", most[0],
                      dense, most[0] > 0 ? dense / most[0] : 0.0);
  text += fmt::format(
      "seconds          accumulate {:.3g}, select {:.3g}, code {:.3g}, decode {:.3g}, mask {:.3g}, apply {:.3g} "
      "(slowest "
      "ranks)\n",
      most[2], most[3], most[6], most[7], most[8], most[4]);
  text += fmt::format("exposed waiting  {:.3g} s; dense exchanges would have taken {:.3g} s by the profile\n", most[1],
                      static_cast<double>(totals.steps) * whole_step_seconds);
  text += fmt::format("slowest rank     {}, {:.3g} s of computing\n", static_cast<int>(-slowest[0]), most[5]);
  co_return text;
}

}  // namespace tulle::gradient
