// Makes the bytes of blocks, with working memory kept from one to the next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/store/block/block.h"

namespace ingero {

class BlockEncoder {
  public:
    BlockEncoder();
    BlockEncoder(BlockEncoder&&) noexcept;
    BlockEncoder& operator=(BlockEncoder&&) noexcept;
    ~BlockEncoder();

    /// As encode_block().
    std::string encode(uint32_t boot_index, std::span<const Event> events);

  private:
    struct Work;
    std::unique_ptr<Work> work_;
};

}  // namespace ingero
