// LMDB's data file, version 1, as 64-bit little-endian machines write it (lmdb 0.9, mdb.c: MDB_meta, MDB_page,
// MDB_node).
#pragma once

#include <cstdint>

namespace ingero::lmdb {

inline constexpr uint32_t lmdb_magic = 0xbeef'c0de;
inline constexpr uint32_t lmdb_version = 1;
inline constexpr uint64_t no_page = ~uint64_t{0};
inline constexpr unsigned max_depth = 32;

enum PageFlags : uint16_t { branch_page = 0x01, leaf_page = 0x02, overflow_page = 0x04, meta_page = 0x08 };
enum NodeFlags : uint16_t { big_data = 0x01, sub_tree = 0x02 };
inline constexpr uint16_t integer_key = 0x08;

struct PageHeader {
    uint64_t number;
    uint16_t pad;
    uint16_t flags;
    uint16_t lower;  // of an overflow run, lower and upper together are its number of pages
    uint16_t upper;
};
static_assert(sizeof(PageHeader) == 16);

struct Tree {
    uint32_t pad;  // of the free list's tree: the page size
    uint16_t flags;
    uint16_t depth;
    uint64_t branch_pages;
    uint64_t leaf_pages;
    uint64_t overflow_pages;
    uint64_t entries;
    uint64_t root;
};
static_assert(sizeof(Tree) == 48);

struct Meta {
    uint32_t magic;
    uint32_t version;
    uint64_t address;
    uint64_t map_bytes;
    Tree free_list;
    Tree main;
    uint64_t last_page;
    uint64_t transaction_id;
};
static_assert(sizeof(Meta) == 136);

struct Node {
    uint16_t low;
    uint16_t high;
    uint16_t flags;
    uint16_t key_bytes;
};
static_assert(sizeof(Node) == 8);

}  // namespace ingero::lmdb
