// Writes well-formed inputs for every fuzzer, made by the encoders: make_corpus <directory>.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/checkpoint.hpp"
#include "base/output_file.hpp"
#include "cli/common/value_file.hpp"
#include "comm/agreement_message.hpp"
#include "comm/tcp/card.hpp"
#include "comm/tcp/door.hpp"
#include "comm/tcp/frame.hpp"
#include "comm/tcp/hello.hpp"
#include "comm/tcp/packed_strings.hpp"
#include "fuzz/fuzz.hpp"
#include "gradient/saved_state.hpp"
#include "nn/run_state.hpp"
#include "server/letters.hpp"
#include "stream/synthetic.hpp"
#include "tulle/codec/frame.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/collectives/registry.hpp"
#include "tulle/collectives/state.hpp"
#include "tulle/comm/message.hpp"
#include "tulle/comm/profile_file.hpp"
#include "tulle/gradient/recipe.hpp"
#include "tulle/gradient/training_trace.hpp"
#include "tulle/linear/csr_file.hpp"
#include "tulle/linear/model.hpp"

namespace tulle::fuzz {
namespace {

class Seed {
 public:
  template <class T>
  Seed& put(T number) {
    return put(std::as_bytes(std::span(&number, 1)));
  }
  Seed& put(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  void write(const std::filesystem::path& directory, std::string_view name) const {
    std::filesystem::create_directories(directory);
    std::ofstream file(directory / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  }

 private:
  Bytes bytes_;
};

AnyStream stream_of(std::uint64_t nnz) { return synthetic_stream({.dimension = 300, .nnz = nnz}); }

void write_indices(const std::filesystem::path& root, std::uint64_t nnz) {
  const AnyStream stream = stream_of(nnz);
  for (const IndexCodec& row : index_codecs()) {
    Seed()
        .put(std::uint16_t{0})
        .put(std::uint16_t{300})
        .put(static_cast<std::uint16_t>(nnz))
        .put(std::uint8_t{0})
        .put(encode_indices(row.coding, stream).bytes())
        .write(root / fmt::format("{}_indices", row.name), std::to_string(nnz));
  }
}

void write_values(const std::filesystem::path& root, std::uint64_t count) {
  Buffer values = Buffer::allocate(count * sizeof(float));
  for (std::uint64_t i = 0; i < count; ++i) values.as_mutable<float>()[i] = i % 7 == 0 ? static_cast<float>(i) : 0.0f;
  for (const ValueCodecRow& row : value_codecs()) {
    const ValueCodec codec{.coding = row.coding, .bucket = 16};
    Seed()
        .put(static_cast<std::uint16_t>(count))
        .put(std::uint8_t{0})
        .put(encode_values(codec, ValueType::f32, values, {}).bytes())
        .write(root / fmt::format("{}_values", row.name), std::to_string(count));
  }
}

void write_frame(const std::filesystem::path& root, const FrameCodings& codings, std::string_view name) {
  Segments segments;
  encode_frame(stream_of(20), {}, codings, segments);
  Seed()
      .put(static_cast<std::uint16_t>(segments[1].size()))
      .put(segments[0].bytes())
      .put(segments[1].bytes())
      .put(segments[2].bytes())
      .write(root / "frame", name);
}

void write_message(const std::filesystem::path& root, bool has_checksum) {
  const Buffer segment = Buffer::copy_of(std::as_bytes(std::span("eight by", 8)));
  const Buffer head = encode_message_head({.has_checksum = has_checksum, .sequence = 3}, std::span(&segment, 1));
  Seed()
      .put(static_cast<std::uint16_t>(head.size()))
      .put(head.bytes())
      .put(segment.bytes())
      .write(root / "message", has_checksum ? "checked" : "plain");
}

void write_agreement(const std::filesystem::path& root, AgreementMessage::Kind kind) {
  AgreementMessage message{.kind = kind, .number = 2, .ballot = 3, .other_ballot = 1, .call = 1};
  message.value = 5;
  message.gone = {3};
  message.proposal = Proposal{.call = 1, .survivors = {{0, 7}, {1, 8}, {4, 9}}};
  Seed()
      .put(std::uint8_t{5})
      .put(encode_agreement_message(message)[0].bytes())
      .write(root / "agreement", std::to_string(static_cast<int>(kind)));
}

void write_measured_profile(const std::filesystem::path& root) {
  MeasuredProfile measured;
  measured.machine = "a corpus";
  measured.date = "2024-05-31T12:00:00Z";
  measured.transport = "tcp";
  measured.ranks = 3;
  measured.also["latency"] = {1, 2, 3};
  const std::string text = profile_text(measured);
  Seed().put(std::as_bytes(std::span(text))).write(root / "profile", "measured");
}

void write_text(const std::filesystem::path& directory, std::string_view name, std::string_view text) {
  Seed().put(std::as_bytes(std::span(text))).write(directory, name);
}

// What a writer of files wrote becomes a seed, in its place.
std::string seed_path(const std::filesystem::path& directory, std::string_view name) {
  std::filesystem::create_directories(directory);
  return (directory / name).string();
}

void write_rows(const std::filesystem::path& root) {
  for (const auto& [choice, text] :
       {std::pair(0, "1 1:0.5 7:-2e3 # why\n-1 qid:3 3:1\n\n+1\n"), std::pair(2, "0 0:1 4294966270:1\n1 9:1 2:3\n"),
        std::pair(1, "1,0,2.5,,3\n-1.25,1e-3\n")}) {
    Seed()
        .put(static_cast<std::uint8_t>(choice))
        .put(std::as_bytes(std::span(std::string_view(text))))
        .write(root / "libsvm", std::to_string(choice));
  }
  for (const float value : {1.0f, 0.5f}) {
    linear::CsrWriter writer(seed_path(root / "csr", value == 1 ? "binary" : "values"), 64);
    const std::uint32_t indices[] = {1, 5, 900};
    const float values[] = {value, value, value};
    for (int row = 0; row < 5; ++row) writer.add({indices, values}, static_cast<float>(row % 2));
    writer.add({}, 1);
    writer.finish(1000);
  }
}

void write_models(const std::filesystem::path& root) {
  linear::LinearModel model{.loss = linear::Loss::logistic, .features = 5, .classes = {-1, 1}};
  model.weights = {0, 1, 0, -2, 0};
  model.intercepts = {0.5f};
  linear::save_model(model, seed_path(root / "model", "two_classes"));
  model.classes = {0, 1, 2};
  model.weights.resize(15, 0.25f);
  model.intercepts = {1, 2, 3};
  linear::save_model(model, seed_path(root / "model", "three_classes"));
  linear::LinearModel squares{.loss = linear::Loss::squares, .features = 2};
  squares.weights = {1, 2};
  squares.intercepts = {0};
  linear::save_model(squares, seed_path(root / "model", "squares"));
}

void write_checkpoint(const std::filesystem::path& root) {
  float weights[] = {1, 2, 3};
  OutputFile file(seed_path(root / "checkpoint", "run"));
  tulle::write_checkpoint(file, R"({"solver":"sgd","coordinates":100})", {std::as_writable_bytes(std::span(weights))});
  file.commit();
}

// Two ranks of a job, and one alone.
void write_states(const std::filesystem::path& root) {
  const std::vector<float> residual = {0.5f, -1, 0}, momentum = {1, 2, 3};
  Seed both;
  for (const std::uint64_t rank : {0, 1}) {
    gradient::SavedState state{.rank = rank, .ranks = 2, .steps = 7, .local_steps = 0, .recipe = "topk:1%"};
    gradient::SavedParameter parameter{.name = "layer", .size = 3, .step = 7, .threshold = 0.5};
    parameter.arrays = {{"residual", residual}, {"momentum", momentum}};
    state.parameters = {parameter};
    const Buffer bytes = gradient::encode_state(state);
    both.put(bytes.bytes());
    if (rank == 0) Seed().put(bytes.bytes()).write(root / "state", "one");
  }
  both.write(root / "state", "two");
}

void write_coded_files(const std::filesystem::path& root) {
  Buffer values = Buffer::allocate(40 * sizeof(float));
  for (int i = 0; i < 40; ++i) values.as_mutable<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i % 3);
  for (const ValueCodecRow& row : value_codecs()) {
    const ValueCodec codec{.coding = row.coding, .bucket = 16};
    cli::write_coded(seed_path(root / "coded", row.name), {.type = ValueType::f32,
                                                           .coding = row.coding,
                                                           .count = 40,
                                                           .bytes = encode_values(codec, ValueType::f32, values, {})});
  }
}

void write_texts(const std::filesystem::path& root) {
  write_text(root / "network", "leaves",
             R"({"preset":"gige","name":"lab","alpha_seconds":1e-6,"beta_seconds_per_byte":1e-9,"ranks_per_node":2,)"
             R"("nodes_per_leaf":4,"oversubscription":2,"stragglers":[{"rank":3,"factor":2}],)"
             R"("slow_links":[{"node":0,"factor":10}]})");
  write_text(root / "network", "node", R"({"node_alpha_seconds":1e-7,"node_beta_seconds_per_byte":1e-11})");
  write_text(root / "result_rows", "allreduce",
             R"({"kind":"allreduce","algorithm":"auto","ranks":4,"dimension":64,"density":0.1,"type":"f32"})"
             "\n");
  write_text(root / "result_rows", "steps",
             R"({"kind":"stats","step":1,"seconds":0.5,"bytes_sent":10,"loss":0.5,"recipe":"a","rank_seconds":[1,2]})"
             "\n"
             R"({"kind":"train","epoch":2,"seconds":1,"nnz":3,"dimension":9,"objective":1})"
             "\n");
  write_text(root / "result_rows", "endless",
             "{\"kind\":\"stats\",\"step\":12222222222222222222222222222,\"seconds\":1e300}\n");
}

void write_recipes(const std::filesystem::path& root) {
  for (const std::string_view text :
       {"topk:1%|qsgd:4|no_ef", "topk:16/512,randomized", "adaptive:redsync:density=0.1%",
        "dense|momentum:0.9|outer:sgd", "dgc:0.1%|warm_up:dense|warm_up_steps:10", "spardl:1%|teams:2"}) {
    write_text(root / "recipe", std::to_string(std::hash<std::string_view>()(text)), text);
  }
  for (const gradient::Preset& preset : gradient::presets()) {
    write_text(root / "recipe", preset.name, preset.name);
    write_text(root / "recipe", fmt::format("{}.json", preset.name), gradient::to_json(preset.recipe));
  }
  write_text(root / "recipe", "preset.json", R"({"preset":"topk","density":0.5,"error_feedback":false})");
}

void write_learned(const std::filesystem::path& root) {
  AlgorithmState state;
  state.calls = 3;
  state.nnz_per_rank = 10.5;
  state.experience.rows.push_back({.number = 1, .calls = 2, .last_call = 2, .known = 2, .ratios = {0.5f, 2}});
  state.experience.last_row = algorithm_number(registry().back());
  state.team_gather = {.target = 100, .h = 5, .least_h = 1, .most_h = 50, .step = 2, .moved_alike = true};
  state.oktopk = {.k = 7, .threshold_age = 1, .region_age = 2, .cuts = {0, 5, 300}};
  write_text(root / "learned", "state", save_state(state));
  write_text(root / "learned", "nothing", save_state({}));
}

void write_traces(const std::filesystem::path& root) {
  gradient::TrainingTrace trace{.model = "mlp", .origin = "a corpus", .batch = 32, .forward_seconds = 0.002};
  trace.overlap = false;
  trace.machine.gamma_dense_seconds *= 2;
  trace.parameters = {
      {.parameter = {.name = "hidden", .size = 800, .rows = 20}, .backward_seconds = 0.003},
      {.parameter = {.name = "output", .size = 10, .role = gradient::Role::output}, .backward_seconds = 0.001}};
  write_text(root / "trace", "two", gradient::to_text(trace));
}

Seed choice(int number) { return Seed().put(static_cast<std::uint8_t>(number)); }

void write_meeting(const std::filesystem::path& root) {
  const Card card{.detach_bytes = 1, .pull_bytes = 2, .host = "host", .addresses = {SocketAddress::any()}};
  const std::string bytes = encode_card(card);
  choice(0).put(std::as_bytes(std::span(bytes))).write(root / "meeting", "card");
  choice(1).put(encode_hello({.kind = Hello::Kind::welcome, .from = 1})).write(root / "meeting", "hello");
  const std::string strings = pack_strings({"one", "", "three"});
  choice(2).put(std::as_bytes(std::span(strings))).write(root / "meeting", "strings");
  Seed notes = choice(3);
  for (const auto& [kind, content] : {std::pair(NoteKind::place, "12345678"), std::pair(NoteKind::here, "")}) {
    notes.put(kind).put(static_cast<std::uint32_t>(std::string_view(content).size()));
    notes.put(std::as_bytes(std::span(std::string_view(content))));
  }
  notes.write(root / "meeting", "notes");
}

// A message with small, large and, where it has a number, pulled segments; then a goodbye. The fuzzer makes checksums.
void write_stream(const std::filesystem::path& root, std::uint64_t number, bool has_trailer) {
  std::vector<Buffer> segments;
  for (const std::size_t bytes : {3, 0, 20, 80}) segments.push_back(Buffer::copy_of(Bytes(bytes, std::byte{7})));
  const Buffer head = encode_message_head({.sequence = 3}, segments);
  const auto head_bytes = static_cast<std::uint32_t>(head.size());
  Seed seed = choice(30);
  seed.put(encode_frame_prefix({.has_trailer = has_trailer, .head_bytes = head_bytes, .number = number}))
      .put(head.bytes());
  if (number != 0) seed.put(std::uint64_t{4096});  // where the last one lies
  for (const Buffer& segment : std::span(segments).first(number != 0 ? 3 : 4)) seed.put(segment.bytes());
  if (has_trailer) seed.put(std::uint32_t{0});
  seed.put(encode_frame_prefix({.kind = FrameKind::pulled, .number = 1}));
  seed.put(encode_frame_prefix({.kind = FrameKind::goodbye}));
  seed.write(root / "inbox", std::string(number != 0 ? "pulled" : "sent") + (has_trailer ? "-with-trailer" : ""));
}

void write_letters(const std::filesystem::path& root) {
  using namespace server;
  for (const LetterKind kind : {LetterKind::join, LetterKind::push, LetterKind::update}) {
    LetterHead head{.kind = kind, .parameter = 1, .sequence = 2, .version = 3, .life = 4, .weight = 0.5};
    if (kind == LetterKind::update) head.accepted = {{1, 2}, {3, 4}};
    const Segments letter = encode_letter(head, body_of("a body"));
    choice(static_cast<int>(letter[0].size()))
        .put(letter[0].bytes())
        .put(letter[1].bytes())
        .write(root / "letter", std::to_string(static_cast<int>(kind)));
  }
}

void write_nn_data(const std::filesystem::path& root) {
  using namespace std::string_view_literals;
  const auto write = [&](int format, std::string_view name, std::string_view one, std::string_view other = {}) {
    choice(format)
        .put(static_cast<std::uint16_t>(one.size()))
        .put(std::as_bytes(std::span(one)))
        .put(std::as_bytes(std::span(other)))
        .write(root / "nn_data", name);
  };
  write(0, "idx",
        "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"
        "abcdef"sv,
        "\0\0\x08\x01\0\0\0\x02\1\2"sv);
  write(1, "cifar", std::string(3073, '\5'));
  write(2, "ctf", "0 |S0 178:1 |S1 14:1 |S2 128:1\n0 |S0 7:1 |S2 0:1\n1 |S0 3:1 |S1 2:1 |S2 1:1\n");
  write(3, "numbers", "1\t2.5\ta\n3 -4e2\tb\n0.5\t1\ta\n");
  write(4, "sentences", "show me flights\tflight\nhow much\tfare\n", "flights\tfare\n");
  write(5, "words", "one two one\nthree two one\n");
  write(6, "bytes", "abc", "de");
  const nn::SavedRun run{.state = {.epoch = 1, .steps = 9, .epochs = {{.epoch = 1}}}, .division = "even"};
  write(7, "state", nn::to_json(run, {{"model", "mlp"}}));
}

void write_all(const std::filesystem::path& root) {
  for (const std::uint64_t count : {1, 5, 40}) {
    write_indices(root, count);
    write_values(root, count);
  }
  for (const IndexCodec& row : index_codecs()) write_frame(root, {.indices = row.coding}, row.name);
  write_frame(root, {.indices = IndexCoding::rice, .values = parse_value_codec("qsgd")}, "rice_qsgd");
  write_frame(root, {.indices = IndexCoding::bitmap, .values = parse_value_codec("three_lc")}, "bitmap_three_lc");
  for (const bool has_checksum : {false, true}) write_message(root, has_checksum);
  for (const auto kind : {AgreementMessage::Kind::join, AgreementMessage::Kind::decide}) write_agreement(root, kind);
  write_measured_profile(root);
  write_rows(root);
  write_models(root);
  write_checkpoint(root);
  write_states(root);
  write_coded_files(root);
  write_texts(root);
  write_recipes(root);
  write_learned(root);
  write_traces(root);
  write_meeting(root);
  for (const std::uint64_t number : {0, 5}) {
    for (const bool has_trailer : {false, true}) write_stream(root, number, has_trailer);
  }
  write_letters(root);
  write_nn_data(root);
}

}  // namespace
}  // namespace tulle::fuzz

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tulle::fuzz::write_all(argv[1]);
  return 0;
}
