#include "measure/traced_device.hpp"

#include "measure/coding_cost.hpp"

namespace tulle::measure {
namespace {

constexpr std::uint32_t kClockPort = 1000;

// A threshold that is used again saves the search for it; what is left is a filter.
double select_share(const gradient::Recipe& recipe, const gradient::Parameter& parameter) {
  const bool reuses = recipe.reuse > 1 && (recipe.search_from == 0 || parameter.size >= recipe.search_from);
  return reuses ? 1 / static_cast<double>(recipe.reuse) : 1;
}

}  // namespace

TracedDevice::TracedDevice(const Communicator& communicator, const TraceSpec& spec)
    : communicator_(communicator), spec_(spec), clock_(communicator, kClockPort) {
  if (!spec.options.network) return;
  for (const Slowed& straggler : spec.options.network->stragglers) {
    if (straggler.number == communicator.rank()) slowness_ *= straggler.factor;
  }
}

double TracedDevice::pass_seconds(double values) const {
  if (!spec_.computes) return 0;
  return spec_.trace.launch_seconds + spec_.trace.machine.gamma_dense_seconds * values;
}

double TracedDevice::pack_seconds(const gradient::Recipe& recipe, const gradient::Parameter& parameter,
                                  const gradient::ParameterStats& stats) const {
  if (!spec_.computes) return 0;
  const auto values = static_cast<double>(parameter.size);
  double seconds = pass_seconds(values);
  if (recipe.momentum != 0) seconds += pass_seconds(values);
  if (stats.route == "low_rank") seconds += pass_seconds(2 * static_cast<double>(recipe.rank) * values);
  const bool selects = (stats.route == "selected" || stats.route == "gathered") && recipe.selector != "none";
  if (!selects) return seconds;
  const double share = select_share(recipe, parameter);
  const Profile& machine = spec_.trace.machine;
  return seconds + kSelectionLaunches * spec_.trace.launch_seconds +
         values * (share * machine.gamma_select_seconds + (1 - share) * machine.gamma_dense_seconds);
}

double TracedDevice::unpack_seconds(const gradient::Recipe& recipe, const gradient::Parameter& parameter,
                                    const gradient::ParameterStats& stats) const {
  if (!spec_.computes) return 0;
  const auto delivered = static_cast<double>(stats.delivered), taken = static_cast<double>(stats.taken);
  const double pair = spec_.trace.machine.gamma_sparse_seconds;
  double seconds = recipe.masking && stats.route != "dense" ? pair * taken : 0;
  if (stats.route == "gathered") {  // everyone's contribution by itself
    const double each = stats.taken == parameter.size ? pass_seconds(taken) : spec_.trace.launch_seconds + pair * taken;
    return seconds + communicator_.size() * each;
  }
  if (stats.delivered == parameter.size) return seconds + pass_seconds(delivered);
  return seconds + spec_.trace.launch_seconds + pair * delivered;
}

double TracedDevice::now() const { return communicator_.engine()->transport().now(); }

// The processor's clock may be behind when a timer rings. A charge of nothing says that the rank is there now.
Task<> TracedDevice::work(double seconds, double& account) {
  account += seconds;
  const double slowed = seconds * slowness_;
  busy_seconds_ += slowed;
  if (slowed <= 0) co_return;
  DatagramPort::ReceiveWithin waiting = clock_.receive_within(slowed);
  co_await waiting;
  communicator_.engine()->transport().charge(0);
}

}  // namespace tulle::measure
