// tulle bench exchange: what the network gives ranks that send to each other at the same time, as collectives do.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_lines.hpp"
#include "base/progress.hpp"
#include "cli/bench/link_speed.hpp"
#include "cli/commands.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#include "cli/common/print.hpp"
#include "cli/common/table.hpp"
#include "measure/machine.hpp"
#include "tulle/base/quartiles.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::cli {
namespace {

enum class Pattern { all_to_all, pairs };

struct ExchangeFlags {
  std::vector<std::uint64_t> bytes = {64 << 10, 1 << 20, 8 << 20};
  Pattern pattern = Pattern::all_to_all;
  int repeats = 9;
  int warmup = 2;
  LaunchOptions launch;
  std::optional<std::string> json_path;

  LaunchFlags launch_flags;  // as they were typed
};

struct ExchangeRow {
  std::uint64_t bytes = 0;
  Quartiles seconds;
  std::optional<double> limit_seconds;  ///< what the busiest link takes for the bytes, both ways at once
  bool verified = false;
};

const char* name_of(Pattern pattern) { return pattern == Pattern::all_to_all ? "all_to_all" : "pairs"; }

std::vector<int> peers_of(Pattern pattern, int rank, int ranks) {
  std::vector<int> peers;
  if (pattern == Pattern::pairs) {
    if ((rank ^ 1) < ranks) peers.push_back(rank ^ 1);
    return peers;
  }
  for (int distance = 1; distance < ranks; ++distance) peers.push_back((rank + distance) % ranks);
  return peers;
}

// Another one for each sender and round, so that what arrived says where it comes from.
std::byte mark_of(int rank, std::size_t round) { return static_cast<std::byte>(31 * rank + static_cast<int>(round)); }

// Gives whether what came is what the peers sent.
Task<bool> exchange(Operation& operation, Buffer mine, std::vector<int> peers, std::size_t round) {
  for (const int peer : peers) operation.send(peer, 0, {mine}, mine.size());
  bool is_right = true;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Incoming incoming = co_await operation.receive_next(0);
    const std::span<const std::byte> got = incoming.segments.at(0).bytes();
    const std::byte mark = mark_of(incoming.from, round);
    is_right = is_right && got.size() == mine.size() && got.front() == mark && got.back() == mark;
  }
  co_return is_right;
}

Request<bool> start_exchange(Communicator& communicator, const Buffer& mine, const std::vector<int>& peers,
                             std::size_t round) {
  const auto result = std::make_shared<std::optional<bool>>();
  auto operation = communicator.start({}, [=](Operation& started) -> Task<> {
    Task<bool> exchanging = exchange(started, mine, peers, round);
    *result = co_await exchanging;
  });
  return {communicator.engine(), std::move(operation), result};
}

/// One row: the rounds of a size. The same on all ranks.
class RowMeasurement {
 public:
  RowMeasurement(Communicator communicator, const ExchangeFlags& flags, std::uint64_t bytes)
      : communicator_(std::move(communicator)),
        flags_(flags),
        peers_(peers_of(flags.pattern, communicator_.rank(), communicator_.size())),
        bytes_(bytes) {}

  Task<ExchangeRow> run(Progress* progress) {
    std::vector<double> samples;
    bool is_right = true;
    for (int round = 0; round < flags_.warmup + flags_.repeats; ++round) {
      Task<double> measuring = run_round(static_cast<std::size_t>(round), is_right);
      const double seconds = co_await measuring;
      if (round >= flags_.warmup) samples.push_back(seconds);
      if (progress != nullptr) progress->advance(1, fmt::format("{} B", bytes_));
    }
    ExchangeRow row{.bytes = bytes_, .seconds = quartiles(std::move(samples)), .verified = is_right};
    if (const std::optional<double> each = link_seconds_per_byte(flags_.launch, communicator_)) {
      const std::size_t most = peers_of(flags_.pattern, 0, communicator_.size()).size();
      row.limit_seconds = *each * static_cast<double>(bytes_ * most);
    }
    co_return row;
  }

 private:
  // The slowest rank's time.
  Task<double> run_round(std::size_t round, bool& is_right) {
    Buffer mine = Buffer::allocate(bytes_);
    std::fill_n(mine.mutable_data(), bytes_, mark_of(communicator_.rank(), round));
    auto meeting = ibarrier(communicator_);
    co_await meeting;
    const double begin = communicator_.engine()->transport().now();
    auto exchanging = start_exchange(communicator_, mine, peers_, round);
    const bool mine_is_right = co_await exchanging;
    const double seconds = communicator_.engine()->transport().now() - begin;
    auto agreeing = icombine(communicator_, std::vector<double>{seconds, mine_is_right ? 0.0 : 1.0}, Op::max());
    const std::vector<double> slowest = co_await agreeing;
    is_right = is_right && slowest[1] == 0;
    co_return slowest[0];
  }

  Communicator communicator_;
  const ExchangeFlags& flags_;
  std::vector<int> peers_;
  std::uint64_t bytes_;
};

std::string heading(const ExchangeFlags& flags, const Communicator& communicator) {
  const measure::Machine machine = measure::this_machine();
  return fmt::format("# tulle {} bench exchange: {}, {} ranks over {}\n", machine.tulle_version, name_of(flags.pattern),
                     communicator.size(), communicator.engine()->transport().name()) +
         fmt::format("# {}, {} cores, {}; {}\n", machine.cpu, machine.cores, machine.compiler,
                     measure::utc_timestamp()) +
         fmt::format("# time: median of {}, slowest rank; bytes: of each message; rate: of a rank, each way\n",
                     flags.repeats) +
         "# limit: the bytes at the speed of the link, both ways at once, without headers\n#\n";
}

std::string table_of(const ExchangeFlags& flags, const std::vector<ExchangeRow>& rows, int ranks) {
  const auto messages = static_cast<double>(peers_of(flags.pattern, 0, ranks).size());
  std::vector<std::vector<std::string>> lines;
  for (const ExchangeRow& row : rows) {
    lines.push_back({fmt::format("{}", row.bytes), format_seconds(row.seconds.median), format_seconds(row.seconds.q1),
                     format_seconds(row.seconds.q3),
                     format_bytes(messages * static_cast<double>(row.bytes) / row.seconds.median) + "/s",
                     row.limit_seconds ? format_seconds(*row.limit_seconds) : "-",
                     row.limit_seconds ? fmt::format("{:.2f}", row.seconds.median / *row.limit_seconds) : "-",
                     row.verified ? "OK" : "FAILED"});
  }
  Table table(
      {{"bytes"}, {"median"}, {"q1"}, {"q3"}, {"rate"}, {"limit"}, {"ratio", "(to it)"}, {"check", "", Align::left}});
  table.fit(lines);
  std::string text = table.header();
  for (const std::vector<std::string>& line : lines) text += table.row(line);
  return text;
}

std::string json_of(const ExchangeFlags& flags, const Communicator& communicator, const ExchangeRow& row) {
  const measure::Machine machine = measure::this_machine();
  nlohmann::ordered_json object{{"kind", "exchange"},
                                {"pattern", name_of(flags.pattern)},
                                {"ranks", communicator.size()},
                                {"transport", communicator.engine()->transport().name()},
                                {"bytes", row.bytes},
                                {"repeats", flags.repeats},
                                {"seconds_median", row.seconds.median},
                                {"seconds_q1", row.seconds.q1},
                                {"seconds_q3", row.seconds.q3},
                                {"limit_seconds", row.limit_seconds ? nlohmann::json(*row.limit_seconds) : nullptr},
                                {"verified", row.verified},
                                {"host", machine.host},
                                {"tulle_version", machine.tulle_version},
                                {"git_commit", machine.git_commit},
                                {"timestamp", measure::utc_timestamp()}};
  if (!machine.lab.empty()) object["lab"] = machine.lab;
  return object.dump();
}

Task<int> run_rank(Communicator communicator, const ExchangeFlags& flags, JsonLines* json) {
  if (flags.launch.deadline_seconds) communicator.set_default_deadline(*flags.launch.deadline_seconds);
  const bool leads = communicator.rank() == 0;
  if (leads) print(heading(flags, communicator));
  std::optional<Progress> progress;
  const std::size_t rounds = flags.bytes.size() * static_cast<std::size_t>(flags.warmup + flags.repeats);
  if (leads) progress.emplace("measuring", rounds);
  std::vector<ExchangeRow> rows;
  for (const std::uint64_t bytes : flags.bytes) {
    RowMeasurement measurement(communicator, flags, bytes);
    Task<ExchangeRow> measuring = measurement.run(leads ? &*progress : nullptr);
    rows.push_back(co_await measuring);
    if (json != nullptr && leads) json->append(json_of(flags, communicator, rows.back()));
  }
  progress.reset();
  if (leads) print(table_of(flags, rows, communicator.size()));
  co_return std::ranges::all_of(rows, &ExchangeRow::verified) ? 0 : 1;
}

Pattern pattern_from(const std::string& text) {
  for (const Pattern pattern : {Pattern::all_to_all, Pattern::pairs}) {
    if (text == name_of(pattern)) return pattern;
  }
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is none of all_to_all, pairs", text));
}

std::uint64_t size_from(const std::string& text) {
  const std::uint64_t bytes = parse_count(text);
  if (bytes == 0) throw Error(ErrorKind::bad_input, "a message has at least 1 byte");
  return bytes;
}

void add_flags(CLI::App& command, ExchangeFlags& flags) {
  add_list(command, "--bytes", "N ...", "of each message: 65536, 2^20, 8M (64K 1M 8M)",
           [&](const std::vector<std::string>& texts) {
             flags.bytes.clear();
             for (const std::string& text : texts) flags.bytes.push_back(size_from(text));
           });
  add(command, "--pattern", "all_to_all|pairs", "everybody with everybody, or ranks 0 and 1, 2 and 3 ... (all_to_all)",
      [&](const std::string& text) { flags.pattern = pattern_from(text); });
  add_launch_flags(command, flags.launch_flags);
  add_int(command, "--repeats", "timed rounds; the median counts (9)", 1, 1000000,
          [&](int number) { flags.repeats = number; });
  add_int(command, "--warmup", "rounds before them, not timed (2)", 0, 1000000,
          [&](int number) { flags.warmup = number; });
  add(command, "--json", "FILE", "append one JSON object per size",
      [&](const std::string& text) { flags.json_path = text; });
}

constexpr const char* kExamples = R"(Examples:
  tulle run -n 4 tulle bench exchange
  tulle run -n 2 tulle bench exchange --pattern pairs --bytes 1K 1M 64M
  mpirun -n 8 tulle bench exchange --bytes 1M 8M --json exchange.jsonl
)";

}  // namespace

void add_bench_exchange_command(CLI::App& parent, Action& action) {
  CLI::App* const command =
      parent.add_subcommand("exchange", "Time ranks that send to each other at once, beside the speed of the link");
  command->footer(kExamples);
  const auto flags = std::make_shared<ExchangeFlags>();
  add_flags(*command, *flags);
  command->callback([flags, &action] {
    const Job job = this_job();
    flags->launch = resolve_launch(flags->launch_flags, job);
    const auto json = flags->json_path && job.prints()
                          ? told_by("--json", [&] { return std::make_shared<JsonLines>(*flags->json_path); })
                          : nullptr;
    action = [flags, json] {
      return launch_tasks(flags->launch, [flags, json](Communicator communicator) {
        return run_rank(std::move(communicator), *flags, json.get());
      });
    };
  });
}

}  // namespace tulle::cli
