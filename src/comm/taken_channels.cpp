#include "comm/taken_channels.hpp"

#include <fmt/format.h>

#include <utility>

namespace tulle {

TakenChannels::TakenChannels(const Communicator& communicator, std::uint32_t first, std::uint32_t end,
                             const std::string& owner)
    : context_(communicator.context()->id), first_(first) {
  const std::shared_ptr<ContextTable> table = communicator.engine()->contexts().shared_from_this();
  if (const std::optional<ChannelRange> taken = table->take_channels(context_, {first, end, owner})) {
    throw Error(
        ErrorKind::bad_input,
        fmt::format("channels {} to {}, for {}, overlap channels {} to {} of the same communicator, which {} has: "
                    "begin at {}, use another communicator, or end the other first",
                    first, end - 1, owner, taken->first, taken->end - 1, taken->owner, taken->end))
        .at_rank(communicator.rank());
  }
  table_ = table;
}

TakenChannels::TakenChannels(TakenChannels&& other) noexcept
    : table_(std::move(other.table_)), context_(other.context_), first_(other.first_) {}

TakenChannels& TakenChannels::operator=(TakenChannels&& other) noexcept {
  std::swap(table_, other.table_);
  std::swap(context_, other.context_);
  std::swap(first_, other.first_);
  return *this;
}

TakenChannels::~TakenChannels() {
  if (table_) table_->free_channels(context_, first_);
}

}  // namespace tulle
