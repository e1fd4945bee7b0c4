// Profiles on disk: what a probe measured, where and how surely, as JSON. docs/tuning.md gives the format.
//
// Threads: the functions keep no state and may be called from any thread; load_profile() as collectives may, one at a
// time on a channel and while no operation is in flight.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "tulle/base/quartiles.hpp"
#include "tulle/comm/communicator.hpp"
#include "tulle/comm/profile.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// One constant of Profile, by the name that the file has for it: its field's.
struct ProfileConstant {
  std::string_view name;
  double Profile::*field;
  std::string_view per;  ///< what its seconds are spent on: "message", "byte", "pair"; empty for a ratio
};

/// All of them, in the order of the fields.
std::span<const ProfileConstant> profile_constants();

/// A profile and where its numbers come from.
struct MeasuredProfile {
  Profile profile;         ///< medians
  Profile first_quartile;  ///< of each constant; the profile's own where there is no spread
  Profile third_quartile;
  std::string machine;    ///< what it was measured on, in words
  std::string date;       ///< "2024-05-31T12:00:00Z"
  std::string transport;  ///< "mpi", "threads", "sim"
  std::string mpi;        ///< the library; empty without MPI
  int ranks = 1;
  int nodes = 1;
  std::map<std::string, Quartiles> also;  ///< what was measured beside the constants, by name

  friend bool operator==(const MeasuredProfile&, const MeasuredProfile&) = default;
};

/// JSON, indented, with a line end.
std::string profile_text(const MeasuredProfile& measured);
/// Reads what profile_text() gives. Strict: an unknown version, a field that is missing, unknown or out of bounds
/// throws bad_input naming `source` and the field.
MeasuredProfile parse_profile(std::string_view text, std::string_view source);

/// The same with a file. Throws system naming it where it cannot be read or written; what was there then stays.
MeasuredProfile read_profile(const std::string& path);
void write_profile(const std::string& path, const MeasuredProfile& measured);

/// Gives all ranks the profile of a file that rank 0 reads. Collective. Where it cannot be read, all ranks throw what
/// read_profile() throws and keep the profile they have. It blocks, which simulated ranks cannot: SimOptions has a
/// profile.
void load_profile(Communicator& communicator, const std::string& path);

/// A variable with the path of a file that mpi_communicator() loads, as it is set for rank 0.
inline constexpr const char* kProfileVariable = "TULLE_PROFILE";

}  // namespace tulle
#pragma GCC visibility pop
