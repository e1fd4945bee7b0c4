// The rendezvous that a launcher has put into the environment.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "tulle/base/error.hpp"
#include "tulle/comm/rendezvous.hpp"

namespace tulle {
namespace {

struct Variable {
  std::string name, value;
};

std::optional<Variable> first_set(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return Variable{name, value};
  }
  return std::nullopt;
}

int number_in(std::string_view text, const Variable& variable, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    throw Error(ErrorKind::bad_input, fmt::format("{} is '{}', which should be a number from {} to {}", variable.name,
                                                  variable.value, least, most));
  }
  return number;
}

int required_number(std::initializer_list<const char*> names, int least, int most) {
  const auto variable = first_set(names);
  if (!variable) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} is not set, and {} is not either: start the program with tulle run, with torchrun, or "
                            "give connect() a rendezvous",
                            *names.begin(), *(names.begin() + 1)));
  }
  return number_in(variable->value, *variable, least, most);
}

constexpr int kLargestPort = 65535, kMostRanks = 1 << 20;

// Jobs on one host are often given neighbouring ports; a step of 1 would meet the next job's.
int port_beside(int master_port) {
  constexpr int kStep = 1000;
  return master_port + kStep <= kLargestPort ? master_port + kStep : master_port - kStep;
}

void read_address(AddressRendezvousOptions& options) {
  if (const auto address = first_set({"TULLE_ADDRESS"})) {
    const std::string_view text = address->value;
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) {
      throw Error(ErrorKind::bad_input, fmt::format("TULLE_ADDRESS is '{}', which should be host:port", text));
    }
    options.port = static_cast<std::uint16_t>(number_in(text.substr(colon + 1), *address, 1, kLargestPort));
    options.host = text.substr(0, colon);
    if (options.host.front() == '[' && options.host.back() == ']') {
      options.host = options.host.substr(1, options.host.size() - 2);  // [::1]:20000
    }
    return;
  }
  const auto host = first_set({"MASTER_ADDR"}), port = first_set({"MASTER_PORT"});
  if (!host || !port) {
    throw Error(ErrorKind::bad_input, "TULLE_ADDRESS is not set, and neither are MASTER_ADDR and MASTER_PORT");
  }
  options.host = host->value;
  options.port = static_cast<std::uint16_t>(port_beside(number_in(port->value, *port, 1, kLargestPort)));
}

}  // namespace

std::unique_ptr<Rendezvous> environment_rendezvous(double deadline_seconds) {
  AddressRendezvousOptions options{.deadline_seconds = deadline_seconds};
  options.size = required_number({"TULLE_SIZE", "WORLD_SIZE"}, 1, kMostRanks);
  options.rank = required_number({"TULLE_RANK", "RANK"}, 0, options.size - 1);
  if (options.size > 1) read_address(options);
  return address_rendezvous(options);
}

bool has_rendezvous_environment() { return first_set({"TULLE_RANK"}).has_value(); }

}  // namespace tulle
