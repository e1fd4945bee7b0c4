// Allreduces of every row in virtual time, with data or, where memory would not hold it, with lengths alone.
#pragma once

#include <memory>
#include <string_view>

#include "measure/workload.hpp"

namespace tulle::measure {

enum class SimData {
  automatic,  ///< real where it fits the memory limit, else phantom
  real,       ///< results are checked
  phantom,    ///< lengths without data: sizes of uniform inputs, as they are expected
};
/// Throws bad_input that lists the allowed names.
SimData sim_data_from(std::string_view name);

struct DataRule {
  SimData data = SimData::automatic;
  double memory_bytes = 2.0 * (1 << 30);
};

/// About what real data would take: inputs, results, and what is under way.
double real_bytes(const ComparisonSpec& spec, double density, int ranks, std::string_view algorithm);
/// Phantom streams and accumulators; nothing to check.
std::unique_ptr<Workload> make_phantom_workload(LocalRanks& ranks, const ComparisonSpec& spec, double density);

/// A machine that computes in no time, so that the network alone counts.
Profile free_computation();

struct SimulatedRow {
  Row measured;
  SimTotals totals;
  bool is_phantom = false;
};

/// The rows of one number of ranks and one density. Inputs are made when the first row needs them.
class Simulation {
 public:
  Simulation(const SimOptions& options, const ComparisonSpec& spec, double density, const DataRule& rule);

  SimulatedRow run(std::string_view algorithm);

 private:
  bool is_phantom(std::string_view algorithm) const;
  Workload& workload_of(bool phantom);

  SimulatedRanks ranks_;
  ComparisonSpec spec_;       // of phantoms, and of what all share
  ComparisonSpec real_spec_;  // knows only the rows that run on data, so that no others get inputs
  double density_;
  DataRule rule_;
  std::unique_ptr<Workload> real_;
  std::unique_ptr<Workload> phantom_;
};

}  // namespace tulle::measure
