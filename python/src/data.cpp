// Streams, selectors and codings.

#include <algorithm>
#include <cstring>

#include "core.hpp"
#include "tulle/codec/registry.hpp"
#include "tulle/select/selector.hpp"
#include "tulle/stream/reduction.hpp"

namespace tulle::python {
namespace {

// ---------------------------------------------------------------- streams

template <class I>
bool increases(const ArrayView& indices) {
  const std::span<const I> all(reinterpret_cast<const I*>(indices.data()), indices.bytes() / sizeof(I));
  return std::ranges::adjacent_find(all, std::greater_equal<>()) == all.end();
}

template <class V, class I>
AnyStream sorted_copy(std::uint64_t dimension, const ArrayView& indices, const ArrayView& values, const Op& op) {
  return Stream<V>::template from_pairs<I>(
      dimension, std::span(reinterpret_cast<const I*>(indices.data()), indices.bytes() / sizeof(I)),
      std::span(reinterpret_cast<const V*>(values.data()), values.bytes() / sizeof(V)), op);
}

// Shares the arrays where they are as a stream has them, and copies where they must be sorted first.
AnyStream sparse_stream(const std::string& type_name, std::uint64_t dimension, const py::object& indices,
                        const py::object& values, const std::string& op_name) {
  const ValueType type = value_type_from(type_name);
  const Op op = op_from(op_name);
  const std::shared_ptr<ArrayView> index_view = view_of(indices, Access::read);
  const std::shared_ptr<ArrayView> value_view = view_of(values, Access::read);
  return without_gil([&]() -> AnyStream {
    const bool is_narrow = index_bytes(dimension) == 4;
    if (index_view->bytes() / index_bytes(dimension) != value_view->bytes() / size_of(type)) {
      throw Error(ErrorKind::bad_input, "there must be as many indices as values");
    }
    if (is_narrow ? increases<std::uint32_t>(*index_view) : increases<std::uint64_t>(*index_view)) {
      AnyStream stream =
          AnyStream::sparse(type, dimension, {0, dimension}, buffer_of(index_view), buffer_of(value_view));
      stream.validate();
      return stream;
    }
    return visit_value_type(type, [&]<class V>() {
      return is_narrow ? sorted_copy<V, std::uint32_t>(dimension, *index_view, *value_view, op)
                       : sorted_copy<V, std::uint64_t>(dimension, *index_view, *value_view, op);
    });
  });
}

AnyStream dense_stream(const std::string& type_name, const py::object& values) {
  const ValueType type = value_type_from(type_name);
  const std::shared_ptr<ArrayView> view = view_of(values, Access::read);
  const std::uint64_t count = view->bytes() / size_of(type);
  return AnyStream::dense(type, count, {0, count}, buffer_of(view));
}

AnyStream stream_of_non_zeros(const std::string& type_name, const py::object& values, const std::string& op_name) {
  const ValueType type = value_type_from(type_name);
  const Op op = op_from(op_name);
  const std::shared_ptr<ArrayView> view = view_of(values, Access::read);
  return without_gil([&] {
    return visit_value_type(type, [&]<class V>() -> AnyStream {
      return Stream<V>::from_dense(std::span(reinterpret_cast<const V*>(view->data()), view->bytes() / sizeof(V)), op);
    });
  });
}

// Writes all values of the range.
void write_dense(const AnyStream& stream, const py::object& target, const std::string& op_name) {
  const Op op = op_from(op_name);
  const std::shared_ptr<ArrayView> view = view_of(target, Access::write);
  without_gil([&] {
    const AnyStream dense = to_dense(stream, op);
    const std::span<const std::byte> bytes = dense.values_buffer().bytes();
    if (bytes.size() != view->bytes()) throw Error(ErrorKind::bad_input, "the array has not the size of the range");
    if (!bytes.empty()) std::memcpy(view->data(), bytes.data(), bytes.size());
  });
}

void bind_streams(py::module_& module) {
  py::class_<Memory>(module, "Memory", py::buffer_protocol()).def_buffer([](const Memory& memory) {
    static std::byte nothing;
    const std::byte* const data = memory.buffer.empty() ? &nothing : memory.buffer.data();
    return py::buffer_info(const_cast<std::byte*>(data), 1, "B", 1, {memory.buffer.size()}, {1}, true);
  });
  py::class_<AnyStream>(module, "AnyStream")
      .def_static("sparse", &sparse_stream)
      .def_static("dense", &dense_stream)
      .def_static("non_zeros", &stream_of_non_zeros)
      .def_static("empty",
                  [](const std::string& type, std::uint64_t n) { return AnyStream::empty(value_type_from(type), n); })
      .def_property_readonly("type", [](const AnyStream& stream) { return text(to_string(stream.type())); })
      .def_property_readonly("dimension", &AnyStream::dimension)
      .def_property_readonly(
          "range", [](const AnyStream& stream) { return py::make_tuple(stream.range().begin, stream.range().end); })
      .def_property_readonly("nnz", &AnyStream::nnz)
      .def_property_readonly("is_dense", &AnyStream::is_dense)
      .def_property_readonly("index_width", &AnyStream::index_width)
      .def("indices", [](const AnyStream& stream) { return Memory{stream.indices_buffer()}; })
      .def("values", [](const AnyStream& stream) { return Memory{stream.values_buffer()}; })
      .def("write_dense", &write_dense)
      .def("to_sparse",
           [](const AnyStream& stream, const std::string& op) {
             return without_gil([&] { return to_sparse(stream, op_from(op)); });
           })
      .def("equals", [](const AnyStream& a, const AnyStream& b) { return without_gil([&] { return a == b; }); });
}

// ---------------------------------------------------------------- selectors

constexpr Named<NonFinite> kNonFinite[] = {
    {"error", NonFinite::error}, {"largest", NonFinite::largest}, {"skip", NonFinite::skip}};
constexpr Named<BucketForm> kForms[] = {{"exact", BucketForm::exact}, {"randomized", BucketForm::randomized}};
constexpr Named<Sign> kSigns[] = {{"any", Sign::any}, {"positive", Sign::positive}, {"negative", Sign::negative}};

const Setter<SelectOptions> kSelectSetters[] = {
    {"k", [](SelectOptions& o, const py::handle& v) { o.k = read<std::uint64_t>(v); }},
    {"density", [](SelectOptions& o, const py::handle& v) { o.density = read<double>(v); }},
    {"threshold", [](SelectOptions& o, const py::handle& v) { o.threshold = read<double>(v); }},
    {"cap", [](SelectOptions& o, const py::handle& v) { o.cap = read<std::uint64_t>(v); }},
    {"bucket", [](SelectOptions& o, const py::handle& v) { o.bucket = read<std::uint64_t>(v); }},
    {"seed", [](SelectOptions& o, const py::handle& v) { o.seed = read<std::uint64_t>(v); }},
    {"step", [](SelectOptions& o, const py::handle& v) { o.step = read<std::uint64_t>(v); }},
    {"threads", [](SelectOptions& o, const py::handle& v) { o.threads = read<int>(v); }},
    {"sign", [](SelectOptions& o, const py::handle& v) { o.sign = named(v, kSigns, "sign"); }},
    {"form", [](SelectOptions& o, const py::handle& v) { o.form = named(v, kForms, "form of buckets"); }},
    {"non_finite",
     [](SelectOptions& o, const py::handle& v) { o.non_finite = named(v, kNonFinite, "policy for NaN"); }},
};

py::tuple as_tuple(Selection selection) {
  return py::make_tuple(std::move(selection.stream), selection.threshold, selection.passed);
}

template <class V>
std::span<V> values_of(const ArrayView& view) {
  return {reinterpret_cast<V*>(view.data()), view.bytes() / sizeof(V)};
}

// `gradient` may be None: then the values of `array` are selected from as they are.
py::tuple select_values(const std::string& selector, const std::string& type, const py::object& array,
                        const py::object& gradient, const std::string& where, const py::dict& arguments) {
  SelectOptions options;
  apply(options, arguments, kSelectSetters);
  const bool in_place = where == "in place";
  const std::shared_ptr<ArrayView> view = view_of(array, in_place ? Access::write : Access::read);
  const std::shared_ptr<ArrayView> added = gradient.is_none() ? nullptr : view_of(gradient, Access::read);
  if (added && added->bytes() != view->bytes()) {
    throw Error(ErrorKind::bad_input, "residual and gradient must have the same size");
  }
  return as_tuple(without_gil([&] {
    return visit_value_type(value_type_from(type), [&]<class V>() {
      if (added) {
        return accumulate_and_select<V>(selector, values_of<V>(*view), values_of<const V>(*added), options);
      }
      return in_place ? select_in_place<V>(selector, values_of<V>(*view), options)
                      : select<V>(selector, values_of<const V>(*view), options);
    });
  }));
}

// ---------------------------------------------------------------- codings

IndexCoding index_coding_from(const std::string& name) {
  std::string names;
  for (const IndexCodec& row : index_codecs()) {
    if (row.name == name) return row.coding;
    names += ", " + std::string(row.name);
  }
  throw Error(ErrorKind::bad_input, "no index coding is called '" + name + "'; there are smallest" + names);
}

py::tuple encode_indices_of(const AnyStream& given, const std::string& name) {
  auto [coding, bytes] = without_gil([&] {
    const AnyStream stream = given.is_dense() ? to_sparse(given, Op::sum()) : given;
    const IndexCoding chosen = name == "smallest" ? smallest_index_coding(stream) : index_coding_from(name);
    return std::pair(chosen, encode_indices(chosen, stream));
  });
  return py::make_tuple(text(to_string(coding)), Memory{std::move(bytes)});
}

Memory decode_index_bytes(const std::string& name, const py::object& bytes, std::uint64_t dimension,
                          std::uint64_t nnz) {
  const std::shared_ptr<ArrayView> view = view_of(bytes, Access::read);
  return {without_gil([&] {
    return decode_indices(index_coding_from(name), {view->data(), view->bytes()}, {0, dimension}, dimension, nnz);
  })};
}

Memory encode_array(const std::string& codec, const std::string& type, const py::object& values, std::uint64_t seed,
                    std::uint64_t rank, std::uint64_t step, int threads) {
  ValueCodec parsed = parse_value_codec(codec);
  parsed.threads = threads;
  const std::shared_ptr<ArrayView> view = view_of(values, Access::read);
  return {without_gil([&] {
    return encode_values(parsed, value_type_from(type), buffer_of(view), {.seed = seed, .rank = rank, .step = step});
  })};
}

Memory decode_array(const std::string& codec, const std::string& type, const py::object& bytes, std::uint64_t count,
                    int threads) {
  const ValueCoding coding = parse_value_codec(codec).coding;
  const std::shared_ptr<ArrayView> view = view_of(bytes, Access::read);
  return {without_gil([&] {
    return decode_values(coding, value_type_from(type), {view->data(), view->bytes()}, count, {}, threads).to_owned();
  })};
}

py::list selector_rows() {
  py::list rows;
  for (const Selector& row : selectors()) {
    py::dict entry;
    entry["name"] = text(row.name);
    entry["summary"] = text(row.summary);
    entry["paper"] = text(row.paper);
    entry["accuracy"] = text(to_string(row.accuracy));
    entry["needs"] = text(to_string(row.needs));
    rows.append(entry);
  }
  return rows;
}

template <class Row>
py::dict codec_row(const Row& row, const char* codes, std::string_view fidelity) {
  py::dict entry;
  entry["name"] = text(row.name);
  entry["codes"] = codes;
  entry["summary"] = text(row.summary);
  entry["paper"] = text(row.paper);
  entry["fidelity"] = text(fidelity);
  return entry;
}

py::list codec_rows() {
  py::list rows;
  for (const IndexCodec& row : index_codecs()) rows.append(codec_row(row, "indices", to_string(Fidelity::exact)));
  for (const ValueCodecRow& row : value_codecs()) rows.append(codec_row(row, "values", to_string(row.fidelity)));
  return rows;
}

}  // namespace

void bind_data(py::module_& module) {
  bind_streams(module);
  module.def("select", &select_values);
  module.def("selectors", &selector_rows);
  module.def("encode_indices", &encode_indices_of);
  module.def("decode_indices", &decode_index_bytes);
  module.def("encode", &encode_array);
  module.def("decode", &decode_array);
  module.def("codecs", &codec_rows);
}

}  // namespace tulle::python
