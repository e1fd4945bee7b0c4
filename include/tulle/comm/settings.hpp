// What all ranks must have alike, compared before they rely on it.
//
// Threads: as the control plane: any thread may call, one at a time on a channel.
#pragma once

#include <span>
#include <string>

#include "tulle/comm/communicator.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// A thing that has a name, and its value in words. REQUIRES: no ": " in the name, and each name once in a list.
struct Setting {
  std::string name;
  std::string text;

  friend bool operator==(const Setting&, const Setting&) = default;
};

/// How an error about a difference begins, and what it says is to be done.
struct DifferenceWords {
  std::string problem = "ranks have different settings";
  std::string remedy = "give all ranks the same";
};

/// Ends when all ranks have called it with the same settings, in any order. Where they differ, all ranks throw the same
/// mismatch, which names the first setting that differs, its values and the ranks that have each of them; a rank may
/// also lack it. The communicator stays usable. Collective: one gather of 4 bytes a rank, and one of the lists where
/// they differ.
void require_same_settings(Communicator& communicator, std::span<const Setting> settings,
                           const DifferenceWords& words = {});
Request<void> irequire_same_settings(Communicator& communicator, std::span<const Setting> settings,
                                     const DifferenceWords& words = {});

}  // namespace tulle
#pragma GCC visibility pop
