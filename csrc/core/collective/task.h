#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace giant {

/// A piece of work that can stop until something has happened and go on later: `co_await until(…)`.
///
/// Starts when it is first resumed. Whoever holds it asks `ready` and resumes it.
class Task {
 public:
  struct promise_type {
    bool (*ready)(void*) = nullptr;  // of what it waits for; none: it may go on
    void* waits_for = nullptr;
    std::exception_ptr error;

    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool done() const { return handle_.done(); }

  bool ready() const {
    const promise_type& promise = handle_.promise();
    return promise.ready == nullptr || promise.ready(promise.waits_for);
  }

  /// Goes on as far as it can; done? For tasks within tasks: `co_await until([&] { return
  /// part.advance(); })`. Throws what the task throws.
  bool advance() {
    while (!done() && ready()) resume();
    return done();
  }

  void resume() {
    handle_.promise().ready = nullptr;
    handle_.resume();
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  explicit Task(Handle handle) : handle_(handle) {}

  Handle handle_;
};

/// What a task awaits: goes on when `condition()` is true.
template <class Condition>
class Until {
 public:
  explicit Until(Condition condition) : condition_(std::move(condition)) {}

  bool await_ready() { return condition_(); }
  void await_suspend(Task::Handle handle) {
    handle.promise().ready = [](void* self) { return static_cast<Until*>(self)->condition_(); };
    handle.promise().waits_for = this;
  }
  void await_resume() {}

 private:
  Condition condition_;
};

template <class Condition>
Until<Condition> until(Condition condition) {
  return Until<Condition>(std::move(condition));
}

}  // namespace giant
