// Channels that somebody has to itself.
#pragma once

#include <memory>
#include <string>

#include "comm/context_table.hpp"
#include "tulle/comm/communicator.hpp"

namespace tulle {

/// A range of a communicator's channels, taken for as long as this lives. Whoever uses a channel without taking it is
/// not found out.
class TakenChannels {
 public:
  TakenChannels() = default;  ///< none
  /// The channels from `first` to before `end`, for `owner`, which errors name. Throws bad_input where some of them are
  /// taken, on this rank alone.
  TakenChannels(const Communicator& communicator, std::uint32_t first, std::uint32_t end, const std::string& owner);
  TakenChannels(TakenChannels&& other) noexcept;
  TakenChannels& operator=(TakenChannels&& other) noexcept;
  ~TakenChannels();

 private:
  std::shared_ptr<ContextTable> table_;  ///< null where there are none
  ContextId context_;
  std::uint32_t first_ = 0;
};

}  // namespace tulle
