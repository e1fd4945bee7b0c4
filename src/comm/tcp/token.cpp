#include "comm/tcp/token.hpp"

#include <sys/random.h>

#include "comm/tcp/socket.hpp"

namespace tulle {

Token random_token() {
  Token token;
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) throw_errno("getrandom");
  return token;
}

bool equal_in_constant_time(const Token& a, const Token& b) {
  volatile unsigned differences = 0;  // volatile: the loop may not end early
  for (std::size_t i = 0; i < a.size(); ++i) differences = differences | std::to_integer<unsigned>(a[i] ^ b[i]);
  return differences == 0;
}

}  // namespace tulle
