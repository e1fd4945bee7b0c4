// Lists of settings as text that travels, and where they differ. No communication here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tulle/comm/settings.hpp"

namespace tulle {

/// A line for each, "NAME: TEXT".
std::string lines_of(std::span<const Setting> settings);
/// The settings of such lines. A line of another form is a name without text, so that any bytes may be read.
std::vector<Setting> settings_of(std::string_view lines);
/// Equal for lists of the same settings, whatever their order.
std::uint32_t checksum_of(std::span<const Setting> settings);

struct SettingDifference {
  std::string name;
  std::vector<std::optional<std::string>> texts;  ///< of each list; nothing where the list lacks it
};
/// The first setting in which lists differ, by the order of the first list; then come settings that only others have.
std::optional<SettingDifference> first_difference(std::span<const std::vector<Setting>> lists);

/// "rate is 0.1 on rank 2 and 0.05 on ranks 0, 1", where the place of a list is its rank.
std::string describe_by_rank(const SettingDifference& difference);

}  // namespace tulle
