// Two processes: latency there and back, and throughput, of Mailbox over Unix sockets.

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "net/endpoint.h"
#include "p2p/mailbox.h"

using namespace giant;

namespace {

constexpr milliseconds kTimeout{30000};

/// Holds the two ends that were made before the fork.
class PairEndpoint final : public Endpoint {
 public:
  PairEndpoint(int peer, Fd outgoing, Fd incoming)
      : peer_(peer), outgoing_(std::move(outgoing)), incoming_(std::move(incoming)) {
    bell_ = Fd(::eventfd(1, EFD_NONBLOCK));
  }

  const std::vector<std::string>& identities() const override { return identities_; }
  Fd connect(int, Purpose, Deadline) override { return std::move(outgoing_); }
  std::vector<int> pollable() const override { return {bell_.get()}; }

  std::vector<Accepted> accept() override {
    std::vector<Accepted> accepted;
    uint64_t rings;
    if (::read(bell_.get(), &rings, sizeof rings) == sizeof rings)
      accepted.push_back({peer_, Purpose::mail, std::move(incoming_)});
    return accepted;
  }

 private:
  std::vector<std::string> identities_{"host", "host"};
  int peer_;
  Fd outgoing_, incoming_, bell_;
};

struct Pair {
  Pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
      throw Error("socketpair failed");
    first = Fd(ends[0]);
    second = Fd(ends[1]);
  }
  Fd first, second;
};

double percentile(std::vector<double>& values, double part) {
  const auto index = static_cast<size_t>(part * (values.size() - 1));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void ping_pong(Mailbox& box, int rank, size_t bytes, int rounds) {
  std::vector<char> data(bytes);
  std::vector<double> one_way;
  for (int i = -rounds / 10; i < rounds; ++i) {
    const auto start = Clock::now();
    if (rank == 0) box.send(data.data(), bytes, 1, 1, kTimeout)->wait(Deadline::after(kTimeout));
    box.receive(data.data(), bytes, 1 - rank, 1, kTimeout)->wait(Deadline::after(kTimeout));
    if (rank == 1) box.send(data.data(), bytes, 0, 1, kTimeout)->wait(Deadline::after(kTimeout));
    if (i >= 0) one_way.push_back(microseconds_since(start) / 2);
  }
  if (rank == 1) return;
  std::printf("%8zu bytes one way: best %7.1f us, median %7.1f us, 90 %% %7.1f us\n", bytes,
              percentile(one_way, 0), percentile(one_way, 0.5), percentile(one_way, 0.9));
  std::fflush(stdout);
}

void stream(Mailbox& box, int rank, size_t bytes, int count) {
  std::vector<char> data(bytes, 1);
  char end = 0;
  const auto start = Clock::now();
  std::vector<std::shared_ptr<Message>> messages;
  for (int i = 0; i < count; ++i)
    messages.push_back(rank == 0 ? box.send(data.data(), bytes, 1, 2, kTimeout)
                                 : box.receive(data.data(), bytes, 0, 2, kTimeout));
  for (auto& message : messages) message->wait(Deadline::after(kTimeout));
  if (rank == 1) box.send(&end, 1, 0, 3, kTimeout);
  if (rank == 1) return;
  box.receive(&end, 1, 1, 3, kTimeout)->wait(Deadline::after(kTimeout));
  const double seconds = microseconds_since(start) * 1e-6;
  std::printf("%8zu bytes in a row: %6.2f GB/s\n", bytes, bytes * count / seconds * 1e-9);
  std::fflush(stdout);
}

void run(int rank, std::unique_ptr<Endpoint> endpoint) {
  const auto box = open_mailbox(std::move(endpoint), rank, 2, "bench");
  ping_pong(*box, rank, 0, 20000);
  ping_pong(*box, rank, 1024, 20000);
  ping_pong(*box, rank, 64 * 1024, 5000);
  ping_pong(*box, rank, 64 * 1024 + 1, 5000);
  ping_pong(*box, rank, 4 << 20, 100);
  stream(*box, rank, 1024, 20000);
  stream(*box, rank, 4 << 20, 200);
  box->close(milliseconds(2000));
}

}  // namespace

int main() {
  Pair there, back;
  const pid_t child = ::fork();
  if (child < 0) return 2;
  const int rank = child == 0 ? 1 : 0;
  Fd& outgoing = rank == 0 ? there.first : back.first;
  Fd& incoming = rank == 0 ? back.second : there.second;
  auto endpoint =
      std::make_unique<PairEndpoint>(1 - rank, std::move(outgoing), std::move(incoming));
  there = Pair();
  back = Pair();
  run(rank, std::move(endpoint));
  if (rank == 1) return 0;
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
