#include "p2p/mailbox.h"

#include "net/endpoint.h"
#include "p2p/core.h"

namespace giant {
namespace {

using p2p::Core;
using p2p::Transfer;

class CoreMailbox final : public Mailbox {
 public:
  explicit CoreMailbox(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  ~CoreMailbox() override {
    core_->abort("the mailbox was destroyed");
    core_->close(milliseconds(0));
  }

  std::shared_ptr<Message> send(const void* data, size_t bytes, int peer, uint64_t tag,
                                milliseconds timeout) override {
    char* const from = static_cast<char*>(const_cast<void*>(data));
    return core_->start({Transfer::Way::send, from, bytes, peer, tag, timeout});
  }

  std::shared_ptr<Message> receive(void* data, size_t bytes, int peer, uint64_t tag,
                                   milliseconds timeout) override {
    char* const to = static_cast<char*>(data);
    return core_->start({Transfer::Way::receive, to, bytes, peer, tag, timeout});
  }

  void abort(const std::string& why) override { core_->abort(why); }
  void close(milliseconds grace) override { core_->close(grace); }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace

std::unique_ptr<Mailbox> open_mailbox(std::unique_ptr<Endpoint> endpoint, int rank, int size,
                                      std::string group_name) {
  return std::make_unique<CoreMailbox>(
      std::make_shared<Core>(std::move(endpoint), rank, size, std::move(group_name)));
}

}  // namespace giant
