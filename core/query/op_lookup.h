// find_op() for rows that come in runs of one op, as the store's blocks have them.
#pragma once

#include "core/model/op.h"

namespace ingero {

class OpLookup {
  public:
    const Op* operator()(OpId id) {
        if (id != last_) found_ = find_op(last_ = id);
        return found_;
    }

  private:
    OpId last_ = 0;  ///< no op has it
    const Op* found_ = nullptr;
};

}  // namespace ingero
