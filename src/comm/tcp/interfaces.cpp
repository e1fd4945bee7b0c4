#include "comm/tcp/interfaces.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <span>

#include "tulle/base/error.hpp"

namespace tulle {
namespace {

struct Interface {
  std::string name;
  SocketAddress address;
};

std::vector<Interface> interfaces_that_are_up() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) throw_errno("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const SocketAddress address(entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!address.is_link_local()) interfaces.push_back({entry->ifa_name, address});
  }
  std::ranges::stable_sort(interfaces, {}, [](const Interface& i) { return i.address.family() != AF_INET; });
  return interfaces;
}

Offer offer_one(const SocketAddress& address) { return {address, {address}}; }

Offer offer_interface(const std::string& wanted) {
  std::string names;
  for (const Interface& interface : interfaces_that_are_up()) {
    if (interface.name == wanted || interface.address.host() == wanted) return offer_one(interface.address);
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", interface.name, interface.address.host());
  }
  throw Error(ErrorKind::bad_input, fmt::format("there is no interface '{}' that is up; there are {}", wanted, names));
}

Offer offer_all() {
  Offer offer{SocketAddress::any(), {}};
  for (const Interface& interface : interfaces_that_are_up()) {
    if (offer.listen.family() == AF_INET && interface.address.family() == AF_INET6) continue;
    offer.addresses.push_back(interface.address);
  }
  return offer;
}

std::span<const unsigned char> bits_of(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    return {reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr), 4};
  }
  return {reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr), 16};
}

int shared_bits(const SocketAddress& a, const SocketAddress& b) {
  if (a.family() != b.family()) return -1;
  const auto x = bits_of(a), y = bits_of(b);
  int bits = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto different = static_cast<unsigned char>(x[i] ^ y[i]);
    bits += std::countl_zero(different);
    if (different != 0) break;
  }
  return bits;
}

}  // namespace

Offer offer_addresses(const std::string& interface, const std::string& meeting_host, const Deadline& deadline) {
  if (!interface.empty()) return offer_interface(interface);
  if (meeting_host.empty()) return offer_all();
  const SocketAddress target = SocketAddress::resolve(meeting_host, 0, deadline).front();
  const auto numbers = SocketAddress::from_numbers(meeting_host, 0);
  // Many hosts resolve their own name to a loopback address, where other hosts would find themselves.
  const bool is_name_of_this_host = target.is_loopback() && !numbers && meeting_host != "localhost";
  const auto towards = is_name_of_this_host ? std::nullopt : address_towards(target);
  return towards ? offer_one(*towards) : offer_all();
}

std::vector<SocketAddress> order_addresses(const std::vector<SocketAddress>& theirs,
                                           const std::vector<SocketAddress>& mine, bool on_same_host) {
  std::vector<SocketAddress> ordered = theirs;
  if (on_same_host) {
    std::ranges::stable_partition(ordered, &SocketAddress::is_loopback);
    return ordered;
  }
  const bool has_others = !std::ranges::all_of(theirs, &SocketAddress::is_loopback);
  if (has_others) std::erase_if(ordered, [](const SocketAddress& address) { return address.is_loopback(); });
  const auto nearness = [&](const SocketAddress& address) {
    int most = -1;
    for (const SocketAddress& own : mine) most = std::max(most, shared_bits(address, own));
    return most;
  };
  std::ranges::stable_sort(ordered, std::ranges::greater(), nearness);
  return ordered;
}

}  // namespace tulle
