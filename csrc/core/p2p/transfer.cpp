#include "p2p/transfer.h"

#include <algorithm>

#include "base/error.h"
#include "p2p/core.h"

namespace giant::p2p {
namespace {

// Longer ones would overflow the clock.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

}  // namespace

void Failure::raise() const {
  switch (kind) {
    case Kind::none: return;
    case Kind::usage: throw UsageError(text);
    case Kind::peer: throw PeerError(text);
    case Kind::timeout: throw TimeoutError(text);
  }
}

std::exception_ptr Failure::exception() const {
  switch (kind) {
    case Kind::none: return nullptr;
    case Kind::usage: return std::make_exception_ptr(UsageError(text));
    case Kind::peer: return std::make_exception_ptr(PeerError(text));
    case Kind::timeout: return std::make_exception_ptr(TimeoutError(text));
  }
  return nullptr;
}

Transfer::Transfer(std::shared_ptr<Core> core, const Request& wanted)
    : request(wanted),
      expires(Clock::now() + std::clamp(wanted.timeout, milliseconds(0), kLongest)),
      core_(std::move(core)),
      source_(wanted.peer) {}

void Transfer::wait(Deadline deadline) {
  if (!done()) core_->wait(*this, deadline);
  failure.raise();
}

void Transfer::on_done(std::function<void(std::exception_ptr)> function) {
  if (!done() && core_->add_callback(*this, function)) return;
  function(failure.exception());
}

std::string Transfer::describe() const {
  const std::string unit = request.bytes == 1 ? " byte" : " bytes";
  const std::string size = std::to_string(request.bytes) + unit;
  const std::string rank = request.peer == Mailbox::kAnySource
                               ? std::string("any rank")
                               : "rank " + std::to_string(request.peer);
  return (is_send() ? "send of " + size + " to " : "receive of " + size + " from ") + rank +
         " (tag " + std::to_string(request.tag) + ")";
}

void Transfer::set_done(Failure why) {
  failure = std::move(why);
  done_.store(true, std::memory_order_release);
}

}  // namespace giant::p2p
