#include "tulle/comm/settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/gather_bytes.hpp"
#include "comm/setting_list.hpp"
#include "comm/tcp/missing_ranks.hpp"
#include "tulle/base/crc32c.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

// Of those that gather_bytes() has: no other call has this one.
constexpr std::uint32_t kDetail = 0x73657474;

std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

std::string line_of(const Setting& setting) {
  return fmt::format("{}: {}\n", on_one_line(setting.name), on_one_line(setting.text));
}

Buffer buffer_of(std::string_view text) { return Buffer::copy_of(std::as_bytes(std::span(text))); }
std::string_view text_of(const Buffer& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Lists mostly have a setting in the same place.
std::optional<std::string> text_in(const std::vector<Setting>& list, std::string_view name, std::size_t likely_place) {
  if (likely_place < list.size() && list[likely_place].name == name) return list[likely_place].text;
  const auto found = std::ranges::find(list, name, &Setting::name);
  return found == list.end() ? std::nullopt : std::optional(found->text);
}

Error difference_error(const PoolVector<Buffer>& packed, const DifferenceWords& words) {
  std::vector<std::vector<Setting>> lists;
  for (const Buffer& lines : packed) lists.push_back(settings_of(text_of(lines)));
  const std::optional<SettingDifference> difference = first_difference(lists);
  return Error(ErrorKind::mismatch,
               fmt::format("{}: {}; {}", words.problem,
                           difference ? describe_by_rank(*difference) : "one has a setting twice", words.remedy));
}

Task<> run_comparison(Operation& operation, std::string lines, std::uint32_t checksum, DifferenceWords words,
                      std::shared_ptr<std::optional<std::optional<Error>>> result) {
  *result = std::optional<Error>();
  Task<PoolVector<Buffer>> gathering =
      gather_bytes(operation, Buffer::copy_of(std::as_bytes(std::span(&checksum, 1))), 0);
  const PoolVector<Buffer> checksums = co_await gathering;
  const auto is_first = [&](const Buffer& other) { return std::ranges::equal(other.bytes(), checksums[0].bytes()); };
  if (std::ranges::all_of(checksums, is_first)) co_return;
  Step rounds = 0;
  for (int distance = 1; distance < operation.size(); distance *= 2) ++rounds;
  Task<PoolVector<Buffer>> gathering_lists = gather_bytes(operation, buffer_of(lines), rounds);
  const PoolVector<Buffer> lists = co_await gathering_lists;
  result->emplace(difference_error(lists, words));
}

}  // namespace

std::string lines_of(std::span<const Setting> settings) {
  std::string lines;
  for (const Setting& setting : settings) lines += line_of(setting);
  return lines;
}

std::vector<Setting> settings_of(std::string_view lines) {
  constexpr std::string_view kBetween = ": ";
  std::vector<Setting> settings;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const std::size_t end = line.find(kBetween);
    const bool has_text = end != line.npos;
    settings.push_back({std::string(line.substr(0, end)), std::string(has_text ? line.substr(end + 2) : "")});
  }
  return settings;
}

std::uint32_t checksum_of(std::span<const Setting> settings) {
  std::vector<std::string> lines;
  for (const Setting& setting : settings) lines.push_back(line_of(setting));
  std::ranges::sort(lines);
  std::uint32_t checksum = 0;
  for (const std::string& line : lines) checksum = crc32c(std::as_bytes(std::span(line)), checksum);
  return checksum;
}

std::optional<SettingDifference> first_difference(std::span<const std::vector<Setting>> lists) {
  for (const std::vector<Setting>& names : lists) {
    for (std::size_t place = 0; place < names.size(); ++place) {
      SettingDifference difference{.name = names[place].name, .texts = {}};
      for (const auto& list : lists) difference.texts.push_back(text_in(list, difference.name, place));
      if (std::ranges::adjacent_find(difference.texts, std::not_equal_to<>()) != difference.texts.end()) {
        return difference;
      }
    }
  }
  return std::nullopt;
}

std::string describe_by_rank(const SettingDifference& difference) {
  constexpr std::size_t kMostTexts = 4;
  std::vector<std::pair<std::optional<std::string>, std::vector<int>>> groups;  // in the order of their first ranks
  for (std::size_t rank = 0; rank < difference.texts.size(); ++rank) {
    const std::optional<std::string>& text = difference.texts[rank];
    auto group = std::ranges::find(groups, text, [](const auto& each) { return each.first; });
    if (group == groups.end()) group = groups.insert(group, {text, {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string words = difference.name;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostTexts); ++i) {
    const auto& [text, ranks] = groups[i];
    words += fmt::format("{} {} on {}", i == 0 ? "" : ",", text ? "is " + *text : "is not set", name_ranks(ranks));
  }
  if (groups.size() > kMostTexts) words += fmt::format(", and has {} more values", groups.size() - kMostTexts);
  return words;
}

Request<void> irequire_same_settings(Communicator& communicator, std::span<const Setting> settings,
                                     const DifferenceWords& words) {
  OperationSettings its_own;
  its_own.signature.kind = OperationKind::gather_bytes;
  its_own.signature.options_hash = kDetail;
  auto result = std::make_shared<std::optional<std::optional<Error>>>();
  auto operation = communicator.start(its_own, [&](Operation& started) {
    return run_comparison(started, lines_of(settings), checksum_of(settings), words, result);
  });
  return {communicator.engine(), std::move(operation), std::move(result)};
}

void require_same_settings(Communicator& communicator, std::span<const Setting> settings,
                           const DifferenceWords& words) {
  irequire_same_settings(communicator, settings, words).wait();
}

}  // namespace tulle
