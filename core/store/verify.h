// All of a store checked against itself, and what it consists of: for `ingeroctl db`, and for tests that ask whether a
// store is whole after a crash. Nothing is written.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/result.h"
#include "core/store/store.h"

namespace ingero {

class Environment;

/// Something that cannot be what was committed. What is not named is whole.
struct StoreDamage {
    std::string table;  ///< empty: the file as a whole
    std::string key;    ///< its numbers with slashes between, as docs/store-format.md has them; empty: all of the table
    std::string what;
    uint64_t events = 0;  ///< that are unreadable for it, as far as is known
};

/// Something that refers to what is not there. No damage: what it names may have been let go for space, or never came.
struct StoreNote {
    std::string what;
    uint64_t count = 0;
};

struct StoreVerification {
    uint64_t blocks = 0;  ///< that were decoded
    uint64_t events = 0;  ///< in them
    uint64_t rows = 0;    ///< of the other tables
    uint64_t damaged = 0;
    std::vector<StoreDamage> damages;  ///< the first most_listed_damages
    std::vector<StoreNote> notes;
    bool is_clean() const { return damaged == 0; }
};
inline constexpr size_t most_listed_damages = 1'000;

struct StoreDescription {
    struct Table {
        std::string name;
        uint64_t rows = 0;
        uint64_t bytes = 0;  ///< whole pages
    };
    struct BlockKind {
        uint16_t version = 0;
        bool compressed = false;
        uint64_t blocks = 0;
        uint64_t events = 0;
        uint64_t bytes = 0;  ///< of the blocks themselves
    };
    struct Boot {
        uint32_t index = 0;
        std::string boot_id;
        std::string node;
        uint64_t sessions = 0;
        uint64_t events = 0;
        Window window;  ///< CLOCK_REALTIME, first start to last end; empty where there is no event
    };
    uint64_t layout = 0;
    uint64_t bytes = 0;       ///< of the data file, up to the last page in use
    uint64_t live_bytes = 0;  ///< of that, what holds something
    uint64_t cap_bytes = 0;
    uint64_t events = 0;
    uint64_t unreadable_blocks = 0;  ///< their headers are damaged: `verify` names them
    std::vector<Table> tables;       ///< by name
    std::vector<BlockKind> blocks;
    std::vector<Boot> boots;
    std::vector<Session> sessions;
};

/// Every seal, every block decoded, keys against contents, orders, sums in headers against rows, each sequence once.
/// Errors: limit (memory), internal; damage is no error.
Result<StoreVerification> verify_store(const Environment& environment, MDB_txn* transaction);
/// The same of a store in a directory, whose pages are checked first. One that cannot be opened for its damage is a
/// verification with that one. Errors: not_found, version, denied, internal.
Result<StoreVerification> verify_store(const std::string& directory);
/// What StoreReader::open() says of a damaged file, as a verification. Errors: those that are not about damage.
Result<StoreVerification> verification_of(const Error& error);

/// Errors: corrupt.
Result<StoreDescription> describe_store(const Environment& environment, MDB_txn* transaction, uint64_t layout);

}  // namespace ingero
