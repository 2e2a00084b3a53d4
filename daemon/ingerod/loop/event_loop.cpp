#include "daemon/ingerod/loop/event_loop.h"

#include <signal.h>

#include <system_error>
#include <utility>

namespace ingero {

namespace {
void check(int result, const char* what) {
    if (result < 0) throw std::system_error(-result, std::generic_category(), what);
}
}  // namespace

struct EventLoop::Source::Impl {
    sd_event_source* source = nullptr;
    std::function<void(uint32_t)> on_io;
    std::function<void()> on_call;
    std::function<void()> on_prepare;
    uint64_t period_us = 0;
    uint64_t accuracy_us = 0;
    // A callback may destroy its own Source: the memory then goes once it has returned.
    bool running = false;
    bool dead = false;

    ~Impl() {
        if (source) {
            sd_event_source_set_enabled(source, SD_EVENT_OFF);
            sd_event_source_unref(source);
        }
    }

    template <class F>
    static int guarded(Impl* self, F&& body) {
        self->running = true;
        body();
        self->running = false;
        if (self->dead) delete self;
        return 0;
    }
};

void EventLoop::Source::Deleter::operator()(Impl* impl) const {
    if (impl->running) {
        impl->dead = true;
        sd_event_source_set_enabled(impl->source, SD_EVENT_OFF);
    } else {
        delete impl;
    }
}

EventLoop::EventLoop() {
    check(sd_event_new(&event_), "sd_event_new");
}

EventLoop::~EventLoop() {
    sd_event_unref(event_);
}

EventLoop::Source EventLoop::add_io(int fd, uint32_t events, std::function<void(uint32_t)> callback) {
    Source result;
    result.impl_.reset(new Source::Impl);
    result.impl_->on_io = std::move(callback);
    auto handler = [](sd_event_source*, int, uint32_t revents, void* data) {
        auto* self = static_cast<Source::Impl*>(data);
        return Source::Impl::guarded(self, [&] { self->on_io(revents); });
    };
    check(sd_event_add_io(event_, &result.impl_->source, fd, events, handler, result.impl_.get()), "sd_event_add_io");
    return result;
}

void EventLoop::set_io_events(const Source& source, uint32_t events) {
    check(sd_event_source_set_io_events(source.impl_->source, events), "sd_event_source_set_io_events");
}

void EventLoop::make_urgent(const Source& source) {
    check(sd_event_source_set_priority(source.impl_->source, SD_EVENT_PRIORITY_IMPORTANT),
          "sd_event_source_set_priority");
}

EventLoop::Source EventLoop::add_timer(uint64_t after_us, std::function<void()> callback, uint64_t accuracy_us) {
    Source result = add_periodic(after_us, std::move(callback), accuracy_us);
    result.impl_->period_us = 0;
    return result;
}

EventLoop::Source EventLoop::add_periodic(uint64_t period_us, std::function<void()> callback, uint64_t accuracy_us) {
    Source result;
    result.impl_.reset(new Source::Impl);
    result.impl_->on_call = std::move(callback);
    result.impl_->period_us = period_us;
    result.impl_->accuracy_us = accuracy_us == 0 ? 1 : accuracy_us;
    auto handler = [](sd_event_source* source, uint64_t, void* data) {
        auto* self = static_cast<Source::Impl*>(data);
        return Source::Impl::guarded(self, [&] {
            if (self->period_us != 0) {
                check(sd_event_source_set_time_relative(source, self->period_us), "sd_event_source_set_time_relative");
                check(sd_event_source_set_enabled(source, SD_EVENT_ONESHOT), "sd_event_source_set_enabled");
            }
            self->on_call();
        });
    };
    check(sd_event_add_time_relative(event_, &result.impl_->source, CLOCK_MONOTONIC, period_us,
                                     result.impl_->accuracy_us, handler, result.impl_.get()),
          "sd_event_add_time_relative");
    return result;
}

EventLoop::Source EventLoop::add_alarm(std::function<void()> callback) {
    constexpr uint64_t never = UINT64_MAX;
    Source result;
    result.impl_.reset(new Source::Impl);
    result.impl_->on_call = std::move(callback);
    auto handler = [](sd_event_source*, uint64_t, void* data) {
        auto* self = static_cast<Source::Impl*>(data);
        return Source::Impl::guarded(self, [&] { self->on_call(); });
    };
    check(sd_event_add_time(event_, &result.impl_->source, CLOCK_MONOTONIC, never, 1, handler, result.impl_.get()),
          "sd_event_add_time");
    return result;
}

void EventLoop::set_alarm(const Source& source, uint64_t at_us) {
    check(sd_event_source_set_time(source.impl_->source, at_us), "sd_event_source_set_time");
    check(sd_event_source_set_enabled(source.impl_->source, SD_EVENT_ONESHOT), "sd_event_source_set_enabled");
}

void EventLoop::set_prepare(const Source& source, std::function<void()> callback) {
    source.impl_->on_prepare = std::move(callback);
    auto handler = [](sd_event_source*, void* data) {
        static_cast<Source::Impl*>(data)->on_prepare();
        return 0;
    };
    check(sd_event_source_set_prepare(source.impl_->source, handler), "sd_event_source_set_prepare");
}

EventLoop::Source EventLoop::add_signal(int signal_number, std::function<void()> callback) {
    Source result;
    result.impl_.reset(new Source::Impl);
    result.impl_->on_call = std::move(callback);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    auto handler = [](sd_event_source*, const signalfd_siginfo*, void* data) {
        auto* self = static_cast<Source::Impl*>(data);
        return Source::Impl::guarded(self, [&] { self->on_call(); });
    };
    check(sd_event_add_signal(event_, &result.impl_->source, signal_number, handler, result.impl_.get()),
          "sd_event_add_signal");
    return result;
}

EventLoop::Source EventLoop::defer(std::function<void()> callback) {
    Source result;
    result.impl_.reset(new Source::Impl);
    result.impl_->on_call = std::move(callback);
    auto handler = [](sd_event_source*, void* data) {
        auto* self = static_cast<Source::Impl*>(data);
        return Source::Impl::guarded(self, [&] { self->on_call(); });
    };
    check(sd_event_add_defer(event_, &result.impl_->source, handler, result.impl_.get()), "sd_event_add_defer");
    return result;
}

int EventLoop::run() {
    // Not by sd_event_exit: what is cleaned up afterwards may still add sources, which sd-event then refuses.
    while (!exit_code_) check(sd_event_run(event_, UINT64_MAX), "sd_event_run");
    return *std::exchange(exit_code_, std::nullopt);
}

void EventLoop::exit(int code) {
    exit_code_ = code;
}

}  // namespace ingero
