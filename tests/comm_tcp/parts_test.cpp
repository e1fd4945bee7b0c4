// The parts of the transport that decide something by themselves.
#include "comm/tcp/interfaces.hpp"
#include "comm/tcp/missing_ranks.hpp"
#include "comm_tcp/tcp_fixture.hpp"

namespace tulle::testing {
namespace {

SocketAddress address(const std::string& host, std::uint16_t port = 7) {
  return *SocketAddress::from_numbers(host, port);
}

std::vector<std::string> hosts_of(const std::vector<SocketAddress>& addresses) {
  std::vector<std::string> hosts;
  for (const SocketAddress& each : addresses) hosts.push_back(each.host());
  return hosts;
}

TEST(TcpAddresses, AreReadAndWritten) {
  EXPECT_EQ(address("10.1.2.3").text(), "10.1.2.3:7");
  EXPECT_EQ(address("fd00::12").text(), "[fd00::12]:7");
  EXPECT_FALSE(SocketAddress::from_numbers("localhost", 1));
  EXPECT_TRUE(address("127.3.2.1").is_loopback() && address("::1").is_loopback() && !address("10.0.0.1").is_loopback());
  EXPECT_TRUE(contains(error_of([] { SocketAddress::resolve("no such host.invalid", 1); }), "cannot be resolved"));
}

TEST(TcpAddresses, OnTheSameHostTheLoopbackIsTriedFirst) {
  const std::vector<SocketAddress> theirs = {address("10.0.0.5"), address("127.0.0.1"), address("fd00::5")};
  EXPECT_EQ(hosts_of(order_addresses(theirs, {}, true)),
            (std::vector<std::string>{"127.0.0.1", "10.0.0.5", "fd00::5"}));
}

TEST(TcpAddresses, OfOtherHostsTheNearestIsTriedFirst) {
  const std::vector<SocketAddress> theirs = {address("172.17.0.1"), address("127.0.0.1"), address("10.1.0.5"),
                                             address("fd00::5")};
  EXPECT_EQ(hosts_of(order_addresses(theirs, {address("10.1.0.9")}, false)),
            (std::vector<std::string>{"10.1.0.5", "172.17.0.1", "fd00::5"}));
  EXPECT_EQ(hosts_of(order_addresses(theirs, {address("fd00::9")}, false)).front(), "fd00::5");
}

TEST(TcpAddresses, TheRouteToTheMeetingSaysWhichIsOffered) {
  EXPECT_EQ(hosts_of(offer_addresses("", "127.0.0.1").addresses), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(hosts_of(offer_addresses("lo", "").addresses), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(hosts_of(offer_addresses("127.0.0.1", "").addresses), std::vector<std::string>{"127.0.0.1"});
  const Offer all = offer_addresses("", "");
  EXPECT_EQ(std::ranges::count(hosts_of(all.addresses), "127.0.0.1"), 1);
  EXPECT_FALSE(all.listen.is_loopback());
}

TEST(TcpAddresses, PortsAreANumberOrARange) {
  EXPECT_EQ(parse_port_range("20000", "x").last, 20000);
  EXPECT_EQ(parse_port_range("20000-20009", "x").last, 20009);
  const Fd taken = listen_at(address("127.0.0.1", 0), {});
  const std::uint16_t port = address_of_this_end(taken.get()).port();
  EXPECT_TRUE(contains(error_of([&] { listen_at(address("127.0.0.1", 0), {port, port}); }), "is in use"));
}

TEST(TcpParts, RanksAreNamedButNotThousands) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({1, 4}), "ranks 1, 4");
  EXPECT_TRUE(name_ranks(std::vector<int>(100, 7)).ends_with("7 and 84 more"));
}

TEST(TcpParts, TokensAreRandomAndCompared) {
  const Token token = random_token();
  Token other = token;
  EXPECT_TRUE(equal_in_constant_time(token, other));
  other[31] ^= std::byte{128};
  EXPECT_FALSE(equal_in_constant_time(token, other));
  EXPECT_NE(random_token(), token);
}

TEST(TcpParts, AHostIsTheSameForAllItsProcesses) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT_TRUE(contains(host_identity(), ":"));
}

TEST(TcpParts, MemoryIsReadWhereItIsThere) {
  const Token token = random_token();
  const RemoteMemory memory{getpid(), reinterpret_cast<std::uintptr_t>(token.data())};
  EXPECT_TRUE(can_read(memory, token));
  EXPECT_FALSE(can_read(memory, random_token()));  // another process with the number of the one that is meant
  EXPECT_FALSE(can_read({getpid(), 8}, token));    // nothing is there
  EXPECT_FALSE(can_read({1 << 30, memory.address}, token));
}

Card card_on(const std::string& host, std::uint32_t cores) {
  Card card;
  card.host = host;
  card.cores = cores;
  return card;
}

TEST(TcpParts, RanksOfOneHostAreOneNode) {
  const std::vector<Card> cards = {card_on("a", 4), card_on("b", 2), card_on("a", 4), card_on("b", 2), card_on("b", 2)};
  const Placement placement = place_ranks(cards);
  EXPECT_EQ(placement.nodes, (PoolVector<int>{0, 1, 0, 1, 1}));
  EXPECT_FALSE(placement.on_one_node);
  EXPECT_DOUBLE_EQ(placement.ranks_per_core, 1.5);
  EXPECT_EQ(profile_of(placement).exchange_factor, 1);
  EXPECT_TRUE(place_ranks(std::vector<Card>{card_on("a", 4)}).on_one_node);
}

TEST(TcpParts, RanksOfSeveralContainersShareTheCoresOfTheirMachine) {
  const std::vector<Card> containers{card_on("boot 4:1", 2), card_on("boot 4:2", 2), card_on("boot 4:3", 2)};
  EXPECT_TRUE(place_ranks(containers).shares_cores);
  EXPECT_FALSE(place_ranks(containers).on_one_node);
  EXPECT_DOUBLE_EQ(place_ranks(containers).ranks_per_core, 1);
  EXPECT_FALSE(place_ranks(std::span(containers).first(2)).shares_cores);
  const std::vector<Card> apart{card_on("boot 4:1", 1), card_on("other 4:1", 1), card_on("process 1", 1),
                                card_on("process 2", 1)};
  EXPECT_FALSE(place_ranks(apart).shares_cores);
}

TEST(TcpParts, CardsSurviveTheRendezvous) {
  const Card card{.detach_bytes = 5,
                  .pull_bytes = 9,
                  .cores = 3,
                  .has_profile = true,
                  .host = "here",
                  .token = random_token(),
                  .probe = {77, 0x123456789ab},
                  .addresses = {address("10.0.0.1", 1234), address("fd00::1", 5)}};
  const Card read = decode_card(encode_card(card), 0);
  EXPECT_EQ(read.detach_bytes, 5u);
  EXPECT_EQ(read.pull_bytes, 9u);
  EXPECT_EQ(read.cores, 3u);
  EXPECT_TRUE(read.has_profile);
  EXPECT_EQ(read.host, "here");
  EXPECT_EQ(read.token, card.token);
  EXPECT_EQ(read.probe.process, 77);
  EXPECT_EQ(read.probe.address, 0x123456789abu);
  ASSERT_EQ(read.addresses.size(), 2u);
  EXPECT_EQ(read.addresses[1].text(), "[fd00::1]:5");
}

}  // namespace
}  // namespace tulle::testing
