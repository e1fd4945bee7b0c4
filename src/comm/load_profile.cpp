#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "tulle/comm/profile_file.hpp"

namespace tulle {
namespace {

// What rank 0 found: a profile, or the error that all ranks throw.
struct Finding {
  Profile profile;
  std::optional<Error> error;
};

Finding find_profile(const std::string& path) {
  try {
    return {read_profile(path).profile, std::nullopt};
  } catch (const Error& error) {
    return {{}, error};
  }
}

// One segment: a byte that is 0 for a profile and else an error's kind plus 1, then the profile or the error's text.
Buffer pack(const Finding& finding) {
  const std::string text = finding.error ? finding.error->what() : "";
  const auto body = finding.error ? std::as_bytes(std::span(text)) : std::as_bytes(std::span(&finding.profile, 1));
  Buffer packed = Buffer::allocate(1 + body.size());
  const int kind = finding.error ? static_cast<int>(finding.error->kind()) + 1 : 0;
  packed.mutable_data()[0] = static_cast<std::byte>(kind);
  std::ranges::copy(body, packed.mutable_data() + 1);
  return packed;
}

Finding unpack(const Buffer& packed) {
  Finding finding;
  const auto body = packed.bytes().subspan(1);
  const int kind = static_cast<int>(packed.bytes()[0]);
  if (kind == 0) {
    std::memcpy(&finding.profile, body.data(), sizeof finding.profile);
  } else {
    const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
    finding.error = Error(static_cast<ErrorKind>(kind - 1), text);
  }
  return finding;
}

Task<> share_finding(Operation& operation, const std::string& path, std::shared_ptr<std::optional<Finding>> result) {
  if (operation.rank() != 0) {
    const Incoming incoming = co_await operation.receive(0, 0);
    *result = unpack(incoming.segments.at(0));
    co_return;
  }
  *result = find_profile(path);
  const Buffer packed = pack(**result);
  for (int peer = 1; peer < operation.size(); ++peer) {
    Segments segments;
    segments.push_back(packed);
    operation.send(peer, 0, std::move(segments), 0);
  }
}

}  // namespace

void load_profile(Communicator& communicator, const std::string& path) {
  CallSignature signature;
  signature.kind = OperationKind::profile;
  const auto result = std::make_shared<std::optional<Finding>>();
  auto operation = communicator.engine()->start(communicator.context(), signature, 0, false, [&](Operation& started) {
    return share_finding(started, path, result);
  });
  const Finding finding = Request<Finding>(communicator.engine(), std::move(operation), result).wait();
  if (finding.error) throw *finding.error;
  communicator.set_profile(finding.profile);
}

}  // namespace tulle
