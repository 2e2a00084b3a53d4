#include "core/store/file/page_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/store/file/lmdb_file.h"

namespace ingero {

using namespace lmdb;

namespace {

auto damaged(const std::string& why) {
    return fail(ErrorCode::corrupt, "the event store's file is damaged: " + why,
                "move the store's directory away and let ingerod start a new one, or restore the file from a copy");
}

bool read_at(int fd, void* buffer, size_t bytes, uint64_t offset) {
    auto* at = static_cast<char*>(buffer);
    while (bytes > 0) {
        const ssize_t got = pread(fd, at, bytes, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        offset += static_cast<uint64_t>(got);
        bytes -= static_cast<size_t>(got);
    }
    return true;
}

/// nullptr when the meta page makes sense, else what is wrong with it.
const char* meta_fault(const PageHeader& page, const Meta& meta, uint64_t file_bytes) {
    const uint64_t page_bytes = meta.free_list.pad;
    if (meta.magic != lmdb_magic || (page.flags & meta_page) == 0) return "it is not an LMDB file";
    if (meta.version != lmdb_version) return "its LMDB format is not version 1";
    if (page_bytes < 512 || page_bytes > 65536 || (page_bytes & (page_bytes - 1)) != 0) return "impossible page size";
    if (meta.free_list.flags != integer_key || meta.main.flags != 0) return "unknown flags";
    if (meta.last_page == 0 || meta.last_page >= file_bytes / page_bytes) return "it is cut short";
    if (meta.map_bytes > uint64_t{1} << 46) return "impossible size";
    return nullptr;
}

struct MetaPair {
    std::array<PageHeader, 2> pages;
    std::array<Meta, 2> metas;
};

Result<MetaPair> read_metas(int fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return fail(ErrorCode::internal, errno_message("cannot read the event store", errno));
    if (status.st_size == 0) return fail(ErrorCode::not_found, "the event store's file is empty");
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    MetaPair pair{};
    uint64_t page_bytes = 0;
    for (size_t i = 0; i < 2; ++i) {
        std::array<char, sizeof(PageHeader) + sizeof(Meta)> raw{};
        if (!read_at(fd, raw.data(), raw.size(), i * page_bytes)) return damaged("it is cut short");
        std::memcpy(&pair.pages[i], raw.data(), sizeof(PageHeader));
        std::memcpy(&pair.metas[i], raw.data() + sizeof(PageHeader), sizeof(Meta));
        if (const char* fault = meta_fault(pair.pages[i], pair.metas[i], file_bytes)) return damaged(fault);
        if (i == 1 && pair.metas[1].free_list.pad != page_bytes) return damaged("its two headers disagree");
        page_bytes = pair.metas[i].free_list.pad;
    }
    return pair;
}

/// Pages from one call of PageProgress to the next: a slow disk reads them in a fraction of a second.
constexpr uint64_t pages_a_report = 16;

/// Walks the trees of one meta page. Each step returns false and leaves a reason.
class Walk {
  public:
    Walk(int fd, const Meta& meta, const PageProgress& progress)
        : fd_(fd), meta_(meta), progress_(progress), page_bytes_(meta.free_list.pad), used_(meta.last_page + 1) {}

    bool run() {
        if (!claim(0, 2) || !walk(meta_.free_list, Kind::free_list)) return false;
        if (!walk(meta_.main, Kind::main)) return false;
        const std::vector<Tree> tables = std::move(sub_trees_);
        return std::all_of(tables.begin(), tables.end(), [this](const Tree& tree) {
            return tree.flags == 0 ? walk(tree, Kind::data) : no("a table of unknown kind");
        });
    }
    const std::string& reason() const { return reason_; }
    bool is_stopped() const { return is_stopped_; }

  private:
    enum class Kind { free_list, main, data };
    using Page = std::vector<char>;

    bool no(const std::string& why) {
        reason_ = why;
        return false;
    }

    template <class T>
    static T at(const Page& page, size_t offset) {
        T value;
        std::memcpy(&value, page.data() + offset, sizeof value);
        return value;
    }

    /// Each page has one owner: LMDB would hand a page of two owners out for writing while the other still needs it.
    bool claim(uint64_t first, uint64_t count) {
        if (count == 0 || first >= used_.size() || count > used_.size() - first)
            return no("a page number past its end");
        for (uint64_t page = first; page < first + count; ++page) {
            if (used_[page]) return no("page " + std::to_string(page) + " is used twice");
            used_[page] = true;
        }
        claimed_ += count;
        return true;
    }

    bool go_on() {
        if (!progress_ || reads_++ % pages_a_report != 0) return true;
        is_stopped_ = !progress_(claimed_, used_.size());
        return is_stopped_ ? no("not all of it was read") : true;
    }

    bool walk(const Tree& tree, Kind kind) {
        counted_ = Tree{};
        last_key_.clear();
        if (tree.root == no_page) return tree.entries == 0 && tree.depth == 0 ? true : no("a tree without a root");
        if (tree.depth == 0 || tree.depth > max_depth) return no("impossible depth");
        if (!descend(tree.root, tree.depth, kind)) return false;
        const bool same = counted_.branch_pages == tree.branch_pages && counted_.leaf_pages == tree.leaf_pages &&
                          counted_.overflow_pages == tree.overflow_pages && counted_.entries == tree.entries;
        return same ? true : no("the counts of a tree are wrong");
    }

    bool read_page(uint64_t number, Page& ret_page) {
        if (!go_on() || !claim(number, 1)) return false;
        ret_page.resize(page_bytes_);
        if (!read_at(fd_, ret_page.data(), page_bytes_, number * page_bytes_)) return no("it is cut short");
        return at<PageHeader>(ret_page, 0).number == number
                   ? true
                   : no("page " + std::to_string(number) + " holds the number of another page");
    }

    bool descend(uint64_t number, unsigned levels, Kind kind) {
        Page page;
        if (!read_page(number, page)) return false;
        const auto header = at<PageHeader>(page, 0);
        const std::string name = "page " + std::to_string(number);
        if (header.flags != (levels == 1 ? leaf_page : branch_page)) return no(name + " is of the wrong kind");
        if (header.lower < sizeof header || header.lower > header.upper || header.upper > page_bytes_ ||
            header.lower % 2)
            return no(name + " has impossible bounds");
        const size_t keys = (header.lower - sizeof header) / 2;
        if (keys < (levels == 1 ? 1 : 2)) return no(name + " has too few keys");
        ++(levels == 1 ? counted_.leaf_pages : counted_.branch_pages);
        read_ahead(page, keys, levels);
        for (size_t i = 0; i < keys; ++i) {
            const size_t offset = at<uint16_t>(page, sizeof header + 2 * i);
            if (offset < header.upper || offset + sizeof(Node) > page_bytes_) return no(name + " has a stray node");
            const auto node = at<Node>(page, offset);
            const size_t data_at = offset + sizeof node + node.key_bytes;
            if (data_at > page_bytes_) return no(name + " has a key past its end");
            if (levels == 1 ? !leaf_node(page, node, data_at, kind) : !branch_node(node, levels, kind)) return false;
        }
        return true;
    }

    /// Has the kernel read what this page leads to, so that the disk works on all of it at once. What cannot be right
    /// is left to those that check it.
    void read_ahead(const Page& page, size_t keys, unsigned levels) const {
        for (size_t i = 0; i < keys; ++i) {
            const size_t offset = at<uint16_t>(page, sizeof(PageHeader) + 2 * i);
            if (offset + sizeof(Node) > page_bytes_) return;
            const auto node = at<Node>(page, offset);
            uint64_t next = child_of(node);
            if (levels == 1) {
                const size_t data_at = offset + sizeof node + node.key_bytes;
                if (node.flags != big_data || data_at + sizeof next > page_bytes_) continue;
                next = at<uint64_t>(page, data_at);
            }
            if (next < used_.size())
                posix_fadvise(fd_, static_cast<off_t>(next * page_bytes_), static_cast<off_t>(page_bytes_),
                              POSIX_FADV_WILLNEED);
        }
    }

    static uint64_t child_of(const Node& node) {
        return node.low | uint64_t{node.high} << 16 | uint64_t{node.flags} << 32;
    }

    bool branch_node(const Node& node, unsigned levels, Kind kind) { return descend(child_of(node), levels - 1, kind); }

    bool leaf_node(const Page& page, const Node& node, size_t data_at, Kind kind) {
        ++counted_.entries;
        if (!next_key({page.data() + data_at - node.key_bytes, node.key_bytes}, kind)) return false;
        const uint64_t bytes = node.low | uint64_t{node.high} << 16;
        if (node.flags == big_data) {
            if (data_at + sizeof(uint64_t) > page_bytes_) return no("a node past its page");
            return overflow_run(at<uint64_t>(page, data_at), bytes, kind);
        }
        if (data_at + bytes > page_bytes_) return no("a value past its page");
        if (node.flags == sub_tree && kind == Kind::main && bytes == sizeof(Tree)) {
            sub_trees_.push_back(at<Tree>(page, data_at));
            return true;
        }
        if (node.flags != 0) return no("a node of unknown kind");
        return kind != Kind::free_list || free_pages({page.data() + data_at, bytes});
    }

    bool next_key(std::string_view key, Kind kind) {
        if (key.empty() || key.size() > 511) return no("a key of impossible length");
        if (kind == Kind::free_list) {
            if (key.size() != sizeof(uint64_t)) return no("a key of impossible length");
            // Integer keys in native order: compare them as LMDB does, as numbers.
            std::string reversed(key.rbegin(), key.rend());
            if (!last_key_.empty() && reversed <= last_key_) return no("keys out of order");
            last_key_ = std::move(reversed);
            return true;
        }
        if (!last_key_.empty() && key <= last_key_) return no("keys out of order");
        last_key_ = key;
        return true;
    }

    bool overflow_run(uint64_t first, uint64_t bytes, Kind kind) {
        const uint64_t pages = (sizeof(PageHeader) - 1 + bytes) / page_bytes_ + 1;
        if (!go_on() || !claim(first, pages)) return false;
        counted_.overflow_pages += pages;
        PageHeader header{};
        if (!read_at(fd_, &header, sizeof header, first * page_bytes_)) return no("it is cut short");
        const uint64_t said = header.lower | uint64_t{header.upper} << 16;
        if (header.number != first || header.flags != overflow_page || said != pages)
            return no("page " + std::to_string(first) + " does not begin a value");
        if (kind != Kind::free_list) return true;
        std::string list(bytes, '\0');
        if (!read_at(fd_, list.data(), list.size(), first * page_bytes_ + sizeof header)) return no("it is cut short");
        return free_pages(list);
    }

    /// A count and that many page numbers, descending.
    bool free_pages(std::string_view list) {
        uint64_t count = 0;
        if (list.size() < sizeof count) return no("a short list of free pages");
        std::memcpy(&count, list.data(), sizeof count);
        if (count > list.size() / sizeof count - 1) return no("a short list of free pages");
        uint64_t above = no_page;
        for (uint64_t i = 1; i <= count; ++i) {
            uint64_t page = 0;
            std::memcpy(&page, list.data() + i * sizeof page, sizeof page);
            if (page >= above) return no("free pages out of order");
            above = page;
            if (!claim(page, 1)) return false;
        }
        return true;
    }

    int fd_;
    const Meta& meta_;
    const PageProgress& progress_;
    size_t page_bytes_;
    std::vector<bool> used_;
    uint64_t claimed_ = 0;  ///< of them
    uint64_t reads_ = 0;
    bool is_stopped_ = false;
    std::vector<Tree> sub_trees_;
    Tree counted_{};
    std::string last_key_;
    std::string reason_;
};

}  // namespace

Result<void> check_file(int data_fd) {
    // A writer may be rewriting a meta page just now: what is wrong for good is still wrong the third time.
    for (int attempt = 0;; ++attempt) {
        const auto metas = read_metas(data_fd);
        if (metas) return {};
        if (metas.error().code != ErrorCode::corrupt || attempt == 2) return tl::unexpected(metas.error());
    }
}

Result<bool> check_pages(int data_fd, uint64_t transaction_id, const PageProgress& progress) {
    const auto pair = read_metas(data_fd);
    if (!pair) return tl::unexpected(pair.error());
    const Meta& meta = pair->metas[transaction_id & 1];
    if (meta.transaction_id != transaction_id) return false;
    Walk walk(data_fd, meta, progress);
    if (walk.run()) return true;
    if (walk.is_stopped()) return fail(ErrorCode::busy, "the check of the event store was stopped");
    return damaged(walk.reason());
}

}  // namespace ingero
