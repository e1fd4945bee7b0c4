#include <string>

#include "tulle/comm/control.hpp"
#include "tulle/comm/profile_file.hpp"

namespace tulle {

// Rank 0 reads; the others get its text and parse it themselves, so that what travels is checked as a file is.
void load_profile(Communicator& communicator, const std::string& path) {
  std::string text;
  const std::exception_ptr failure = failure_of([&] {
    if (communicator.rank() == 0) text = profile_text(read_profile(path));
  });
  fail_together(communicator, failure);
  const Buffer sent = broadcast_bytes(communicator, Buffer::copy_of(std::as_bytes(std::span(text))));
  const std::string_view received(reinterpret_cast<const char*>(sent.data()), sent.size());
  communicator.set_profile(parse_profile(received, path).profile);
}

}  // namespace tulle
