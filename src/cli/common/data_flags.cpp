#include "cli/common/data_flags.hpp"

#include <fmt/format.h>

#include "base/progress.hpp"
#include "cli/common/flags.hpp"
#include "cli/common/numbers.hpp"
#if TULLE_HAVE_MPI
#include "tulle/comm/mpi_file.hpp"
#endif

namespace tulle::cli {
namespace {

#if TULLE_HAVE_MPI
class MpiReader final : public PositionalReader {
 public:
  explicit MpiReader(const std::string& path) : path_(path), file_(path), size_(file_.size()) {}
  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override { file_.read_at(offset, bytes); }
  // Not by a thread: MPI may allow calls from one alone.
  std::unique_ptr<PendingRead> start_read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    return std::make_unique<Reading>(file_, offset, bytes);
  }

 private:
  struct Reading final : PendingRead {
    Reading(const MpiFile& file, std::uint64_t offset, std::span<std::byte> bytes) : reading(file, offset, bytes) {}
    void finish() override { reading.finish(); }
    MpiFile::Reading reading;
  };

  std::string path_;
  MpiFile file_;
  std::uint64_t size_;
};
#endif

linear::TextFormat format_from(const std::string& name) {
  if (name == "libsvm") return linear::TextFormat::libsvm;
  if (name == "csv") return linear::TextFormat::csv;
  throw Error(ErrorKind::bad_input, fmt::format("'{}' is not one of libsvm, csv", name));
}

}  // namespace

void add_data_flags(CLI::App& command, linear::DataOptions& options) {
  add(command, "--format", "libsvm|csv", "of text; what 'tulle convert' wrote is known by itself (libsvm)",
      [&](const std::string& text) { options.text.format = format_from(text); });
  add_int(command, "--first-index", "what libsvm text calls the first feature (1)", 0, 1,
          [&](int number) { options.text.first_index = static_cast<std::uint32_t>(number); });
  command.add_flag("--skip-bad", options.text.skip_bad, "count lines that are wrong instead of stopping at the first");
  add(command, "--memory", "BYTES", "for the rows of a rank; the rest is read in every pass (4G)",
      [&](const std::string& text) { options.memory_bytes = parse_count(text); });
}

linear::Dataset open_data(const std::string& path, TransportChoice transport, linear::DataOptions options, int rank) {
  std::optional<Progress> progress;
  std::uint64_t rows_read = 0;
  if (rank == 0) progress.emplace("reading", 0);
  options.on_rows = [&](std::uint64_t rows) {
    rows_read += rows;
    if (progress) progress->advance(rows, fmt::format("{} rows", rows_read));
  };
  return linear::open_dataset(open_filled(path, transport), options);
}

ReaderPtr open_filled(const std::string& path, TransportChoice transport) {
  ReaderPtr reader = open_reader(path, transport);
  if (reader->size() == 0) throw Error(ErrorKind::bad_input, fmt::format("{}: is empty", path));
  return reader;
}

ReaderPtr open_reader(const std::string& path, TransportChoice transport) {
#if TULLE_HAVE_MPI
  if (transport == TransportChoice::mpi) return std::make_shared<MpiReader>(path);
#endif
  (void)transport;
  return open_file(path);
}

}  // namespace tulle::cli
