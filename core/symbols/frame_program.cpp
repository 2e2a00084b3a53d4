#include "core/symbols/frame_program.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <limits>

namespace ingero {

namespace {

/// DWARF 5, tables 7.9, 7.29 and the LSB's additions. libdw's dwarf.h has them too, and nothing else of it is needed.
enum : uint8_t {
    DW_OP_deref = 0x06,
    DW_OP_and = 0x1a,
    DW_OP_plus = 0x22,
    DW_OP_shl = 0x24,
    DW_OP_ge = 0x2a,
    DW_OP_lit3 = 0x33,
    DW_OP_lit11 = 0x3b,
    DW_OP_lit15 = 0x3f,
    DW_OP_breg0 = 0x70,
    DW_OP_breg7 = 0x77,
    DW_OP_breg16 = 0x80,
};
enum : uint8_t {
    DW_CFA_nop = 0x00,
    DW_CFA_set_loc = 0x01,
    DW_CFA_advance_loc1 = 0x02,
    DW_CFA_advance_loc2 = 0x03,
    DW_CFA_advance_loc4 = 0x04,
    DW_CFA_offset_extended = 0x05,
    DW_CFA_restore_extended = 0x06,
    DW_CFA_undefined = 0x07,
    DW_CFA_same_value = 0x08,
    DW_CFA_register = 0x09,
    DW_CFA_remember_state = 0x0a,
    DW_CFA_restore_state = 0x0b,
    DW_CFA_def_cfa = 0x0c,
    DW_CFA_def_cfa_register = 0x0d,
    DW_CFA_def_cfa_offset = 0x0e,
    DW_CFA_def_cfa_expression = 0x0f,
    DW_CFA_expression = 0x10,
    DW_CFA_offset_extended_sf = 0x11,
    DW_CFA_def_cfa_sf = 0x12,
    DW_CFA_def_cfa_offset_sf = 0x13,
    DW_CFA_val_offset = 0x14,
    DW_CFA_val_offset_sf = 0x15,
    DW_CFA_val_expression = 0x16,
    DW_CFA_GNU_window_save = 0x2d,
    DW_CFA_GNU_args_size = 0x2e,
    DW_CFA_GNU_negative_offset_extended = 0x2f,
    DW_CFA_advance_loc = 0x40,
    DW_CFA_offset = 0x80,
    DW_CFA_restore = 0xc0,
};
enum : uint8_t {
    DW_EH_PE_absptr = 0x00,
    DW_EH_PE_uleb128 = 0x01,
    DW_EH_PE_udata2 = 0x02,
    DW_EH_PE_udata4 = 0x03,
    DW_EH_PE_udata8 = 0x04,
    DW_EH_PE_sleb128 = 0x09,
    DW_EH_PE_sdata2 = 0x0a,
    DW_EH_PE_sdata4 = 0x0b,
    DW_EH_PE_sdata8 = 0x0c,
    DW_EH_PE_pcrel = 0x10,
};

constexpr size_t max_remembered = 64;
constexpr uint64_t slot_bytes = 8;
constexpr int64_t max_saved_slots = INGERO_UNWIND_AT_FP - 1;

/// Numbers of registers, by the processor supplements of the ABI.
struct Registers {
    uint64_t stack_pointer, frame_pointer, return_address;
};

Registers registers_of(uint16_t machine) {
    return machine == EM_AARCH64 ? Registers{31, 29, 30} : Registers{7, 6, 16};
}

/// Sums of a hostile file's numbers may wrap; what comes out is checked when a row is made of it.
int64_t wrapping_product(uint64_t a, int64_t b) {
    return static_cast<int64_t>(a * static_cast<uint64_t>(b));
}

class FrameMachine {
  public:
    FrameMachine(const CommonEntry& common, const FrameState& state) : common_(common), state_(state) {
        registers_ = registers_of(common.machine);
    }

    /// Runs the program; `emit(address)` is called before the state changes to what holds from a later address on.
    template <class Emit>
    bool run(ByteCursor cursor, uint64_t address, const FrameState& initial, Emit emit);

    const FrameState& state() const { return state_; }

  private:
    bool step(ByteCursor& cursor, uint8_t instruction, const FrameState& initial);
    void define_cfa(uint64_t number, int64_t offset);
    void define_cfa_expression(ByteCursor expression);
    RegisterRule* rule_of(uint64_t number) {
        if (number == registers_.frame_pointer) return &state_.frame_pointer;
        return number == common_.return_register ? &state_.return_address : nullptr;
    }
    void set(uint64_t number, RegisterRule rule) {
        if (RegisterRule* known = rule_of(number)) *known = rule;
    }
    void restore(uint64_t number, const FrameState& initial) {
        if (number == registers_.frame_pointer) state_.frame_pointer = initial.frame_pointer;
        if (number == common_.return_register) state_.return_address = initial.return_address;
    }
    RegisterRule by_expression(ByteCursor expression) const;

    const CommonEntry& common_;
    Registers registers_{};
    FrameState state_;
    std::vector<FrameState> remembered_;
};

void FrameMachine::define_cfa(uint64_t number, int64_t offset) {
    state_.cfa_register = number;
    state_.cfa.offset = offset;
    state_.cfa.kind = number == registers_.stack_pointer   ? CfaRule::Kind::stack_pointer
                      : number == registers_.frame_pointer ? CfaRule::Kind::frame_pointer
                                                           : CfaRule::Kind::none;
}

void FrameMachine::define_cfa_expression(ByteCursor expression) {
    // What every x86-64 linker writes for its PLT: sp + 8 + (((ip & 15) >= 11) << 3).
    static constexpr std::array<unsigned char, 11> plt = {DW_OP_breg7, 8,         DW_OP_breg16, 0,
                                                          DW_OP_lit15, DW_OP_and, DW_OP_lit11,  DW_OP_ge,
                                                          DW_OP_lit3,  DW_OP_shl, DW_OP_plus};
    const auto bytes = expression.rest();
    state_.cfa = {};
    if (common_.machine == EM_X86_64 && std::equal(bytes.begin(), bytes.end(), plt.begin(), plt.end())) {
        state_.cfa.kind = CfaRule::Kind::plt;
        return;
    }
    // What compilers write for a function that realigns its stack: *(fp + n).
    if (expression.fixed<uint8_t>() != DW_OP_breg0 + registers_.frame_pointer) return;
    const int64_t offset = expression.sleb();
    if (expression.fixed<uint8_t>() != DW_OP_deref || !expression.at_end() || expression.failed()) return;
    state_.cfa = {CfaRule::Kind::frame_pointer_deref, offset};
}

/// "At the address in the frame pointer" goes with a realigned stack; others are not followed.
RegisterRule FrameMachine::by_expression(ByteCursor expression) const {
    const bool at_frame_pointer = expression.fixed<uint8_t>() == DW_OP_breg0 + registers_.frame_pointer &&
                                  expression.sleb() == 0 && expression.at_end() && !expression.failed();
    return {at_frame_pointer ? RegisterRule::Kind::at_frame_pointer : RegisterRule::Kind::lost, 0};
}

template <class Emit>
bool FrameMachine::run(ByteCursor cursor, uint64_t address, const FrameState& initial, Emit emit) {
    uint64_t pending = address;
    const auto advance = [&](uint64_t to) {
        if (to <= pending) return to == pending;
        emit(pending);
        pending = to;
        return true;
    };
    while (!cursor.at_end()) {
        const auto instruction = cursor.fixed<uint8_t>();
        uint64_t delta = 0;
        bool moves = true;
        if ((instruction & 0xc0) == DW_CFA_advance_loc)
            delta = instruction & 0x3f;
        else if (instruction == DW_CFA_advance_loc1)
            delta = cursor.fixed<uint8_t>();
        else if (instruction == DW_CFA_advance_loc2)
            delta = cursor.fixed<uint16_t>();
        else if (instruction == DW_CFA_advance_loc4)
            delta = cursor.fixed<uint32_t>();
        else
            moves = false;
        if (moves && !advance(pending + delta * common_.code_factor)) return false;
        if (instruction == DW_CFA_set_loc) {
            const auto to = cursor.pointer(common_.pointer_encoding);
            if (!to || !advance(*to)) return false;
        } else if (!moves && !step(cursor, instruction, initial)) {
            return false;
        }
        if (cursor.failed()) return false;
    }
    emit(pending);
    return true;
}

/// False for what is no instruction known here: the state is then not to be relied on.
bool FrameMachine::step(ByteCursor& cursor, uint8_t instruction, const FrameState& initial) {
    const int64_t factor = common_.data_factor;
    const uint8_t low = instruction & 0x3f;
    using Kind = RegisterRule::Kind;
    if ((instruction & 0xc0) == DW_CFA_offset)
        return set(low, {Kind::at_cfa, wrapping_product(cursor.uleb(), factor)}), true;
    if ((instruction & 0xc0) == DW_CFA_restore) return restore(low, initial), true;
    switch (instruction) {
        case DW_CFA_nop:
            return true;
        case DW_CFA_GNU_args_size:
            return cursor.uleb(), true;
        case DW_CFA_remember_state:
            if (remembered_.size() == max_remembered) return false;
            return remembered_.push_back(state_), true;
        case DW_CFA_restore_state:
            if (remembered_.empty()) return false;
            state_ = remembered_.back();
            return remembered_.pop_back(), true;
        case DW_CFA_def_cfa_offset:
            return define_cfa(state_.cfa_register, static_cast<int64_t>(cursor.uleb())), true;
        case DW_CFA_def_cfa_offset_sf:
            return define_cfa(state_.cfa_register, wrapping_product(static_cast<uint64_t>(cursor.sleb()), factor)),
                   true;
        case DW_CFA_def_cfa_expression:
            return define_cfa_expression(cursor.take(cursor.uleb())), true;
        // Sparc's window save; on aarch64 it says that the return address is signed, which the walk strips anyway.
        case DW_CFA_GNU_window_save:
            return common_.machine == EM_AARCH64;
        default:
            break;
    }
    const uint64_t number = cursor.uleb();
    switch (instruction) {
        case DW_CFA_def_cfa:
            return define_cfa(number, static_cast<int64_t>(cursor.uleb())), true;
        case DW_CFA_def_cfa_sf:
            return define_cfa(number, wrapping_product(static_cast<uint64_t>(cursor.sleb()), factor)), true;
        case DW_CFA_def_cfa_register:
            return define_cfa(number, state_.cfa.offset), true;
        case DW_CFA_offset_extended:
            return set(number, {Kind::at_cfa, wrapping_product(cursor.uleb(), factor)}), true;
        case DW_CFA_offset_extended_sf:
            return set(number, {Kind::at_cfa, wrapping_product(static_cast<uint64_t>(cursor.sleb()), factor)}), true;
        case DW_CFA_GNU_negative_offset_extended:
            return set(number, {Kind::at_cfa, wrapping_product(0 - cursor.uleb(), factor)}), true;
        case DW_CFA_restore_extended:
            return restore(number, initial), true;
        case DW_CFA_undefined:
            return set(number, {Kind::undefined, 0}), true;
        case DW_CFA_same_value:
            return set(number, {Kind::unchanged, 0}), true;
        case DW_CFA_register:
        case DW_CFA_val_offset:
        case DW_CFA_val_offset_sf:
            return cursor.uleb(), set(number, {Kind::lost, 0}), true;
        case DW_CFA_val_expression:
            return cursor.skip(cursor.uleb()), set(number, {Kind::lost, 0}), true;
        case DW_CFA_expression:
            return set(number, by_expression(cursor.take(cursor.uleb()))), true;
        default:
            return false;
    }
}

/// The slot below the CFA that a register was saved in; nothing where the row has no room for it.
std::optional<uint8_t> saved_slot(const RegisterRule& rule) {
    using Kind = RegisterRule::Kind;
    switch (rule.kind) {
        case Kind::unchanged:
            return INGERO_UNWIND_UNCHANGED;
        case Kind::at_frame_pointer:
            return INGERO_UNWIND_AT_FP;
        case Kind::lost:
        case Kind::undefined:
            return std::nullopt;
        case Kind::at_cfa:
            break;
    }
    const int64_t slots = -(rule.offset / static_cast<int64_t>(slot_bytes));
    if (rule.offset % static_cast<int64_t>(slot_bytes) != 0 || slots < 1 || slots > max_saved_slots)
        return std::nullopt;
    return static_cast<uint8_t>(slots);
}

std::optional<uint16_t> packed_cfa(const CfaRule& rule) {
    uint16_t kind = INGERO_UNWIND_NONE;
    int64_t offset = rule.offset;
    switch (rule.kind) {
        case CfaRule::Kind::none:
            return std::nullopt;
        case CfaRule::Kind::stack_pointer:
            kind = INGERO_UNWIND_SP;
            break;
        case CfaRule::Kind::frame_pointer:
            kind = INGERO_UNWIND_FP;
            break;
        case CfaRule::Kind::plt:
            kind = INGERO_UNWIND_PLT;
            break;
        case CfaRule::Kind::frame_pointer_deref:
            kind = INGERO_UNWIND_FP_DEREF;
            if (offset > 0 || offset < -static_cast<int64_t>(INGERO_UNWIND_MAX_CFA * slot_bytes)) return std::nullopt;
            offset = -offset;
            break;
    }
    if (offset < 0 || offset % static_cast<int64_t>(slot_bytes) != 0) return std::nullopt;
    const uint64_t slots = static_cast<uint64_t>(offset) / slot_bytes;
    if (slots > INGERO_UNWIND_MAX_CFA) return std::nullopt;
    return static_cast<uint16_t>(kind << 13 | slots);
}

/// NONE where a rule is not followed; `ret_supported` then turns false.
ingero_unwind_row to_row(const FrameState& state, const CommonEntry& common, uint64_t address, bool& ret_supported) {
    ingero_unwind_row row{static_cast<uint32_t>(address), INGERO_UNWIND_NONE, 0, 0};
    if (state.return_address.kind == RegisterRule::Kind::undefined) {
        row.cfa = INGERO_UNWIND_OUTERMOST << 13;
        return row;
    }
    const auto cfa = packed_cfa(state.cfa);
    const auto return_address = saved_slot(state.return_address);
    const bool in_memory = return_address && *return_address != INGERO_UNWIND_AT_FP &&
                           (*return_address != INGERO_UNWIND_UNCHANGED || common.machine == EM_AARCH64);
    if (!cfa || !in_memory) {
        ret_supported = false;
        return row;
    }
    row.cfa = *cfa;
    row.return_address = *return_address;
    row.frame_pointer = saved_slot(state.frame_pointer).value_or(INGERO_UNWIND_LOST);
    return row;
}

}  // namespace

uint64_t ByteCursor::uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const auto byte = fixed<uint8_t>();
        if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (failed_ || !(byte & 0x80)) return failed_ ? 0 : value;
    }
}

int64_t ByteCursor::sleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
        const auto byte = fixed<uint8_t>();
        if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        shift += 7;
        if (failed_) return 0;
        if (byte & 0x80) continue;
        if (shift < 64 && (byte & 0x40)) value |= ~0ULL << shift;
        return static_cast<int64_t>(value);
    }
}

ByteCursor ByteCursor::take(uint64_t count) {
    if (count > bytes_.size()) return fail(), ByteCursor({}, address_);
    ByteCursor part(bytes_.subspan(0, count), address_);
    advance(count);
    return part;
}

std::optional<uint64_t> ByteCursor::pointer(uint8_t encoding) {
    const uint64_t here = address_;
    uint64_t value = 0;
    switch (encoding & 0x0f) {
        case DW_EH_PE_absptr:
        case DW_EH_PE_udata8:
        case DW_EH_PE_sdata8:
            value = fixed<uint64_t>();
            break;
        case DW_EH_PE_uleb128:
            value = uleb();
            break;
        case DW_EH_PE_sleb128:
            value = static_cast<uint64_t>(sleb());
            break;
        case DW_EH_PE_udata2:
            value = fixed<uint16_t>();
            break;
        case DW_EH_PE_udata4:
            value = fixed<uint32_t>();
            break;
        case DW_EH_PE_sdata2:
            value = static_cast<uint64_t>(int64_t{fixed<int16_t>()});
            break;
        case DW_EH_PE_sdata4:
            value = static_cast<uint64_t>(int64_t{fixed<int32_t>()});
            break;
        default:
            return std::nullopt;
    }
    switch (encoding & 0xf0) {
        case 0:
            return value;
        case DW_EH_PE_pcrel:
            return here + value;
        default:
            return std::nullopt;
    }
}

CommonEntry read_common_entry(ByteCursor cursor, uint16_t machine) {
    CommonEntry common;
    common.machine = machine;
    const auto version = cursor.fixed<uint8_t>();
    if (version != 1 && version != 3) return common;
    std::array<char, 8> augmentation{};
    size_t length = 0;
    while (const auto letter = cursor.fixed<char>()) {
        if (length == augmentation.size()) return common;
        augmentation[length++] = letter;
    }
    common.code_factor = cursor.uleb();
    common.data_factor = cursor.sleb();
    common.return_register = version == 1 ? cursor.fixed<uint8_t>() : cursor.uleb();
    // Without a 'z' nothing says how long the augmentation's data are; only an empty one is known then.
    if (length > 0 && augmentation[0] != 'z') return common;
    common.has_augmentation_size = length > 0;
    ByteCursor data = length > 0 ? cursor.take(cursor.uleb()) : ByteCursor({}, 0);
    for (size_t i = 1; i < length; ++i) {
        if (augmentation[i] == 'R') common.pointer_encoding = data.fixed<uint8_t>();
        if (augmentation[i] == 'L') data.skip(1);
        if (augmentation[i] == 'P') {
            const auto encoding = data.fixed<uint8_t>();
            if (!data.pointer(encoding & 0x0f)) return common;
        }
        if (!std::strchr("RLPSB", augmentation[i])) break;  // what follows is not known: the rest is skipped by size
    }
    if (cursor.failed() || data.failed() || common.return_register != registers_of(machine).return_address)
        return common;
    FrameMachine frames(common, {});
    if (!frames.run(cursor, 0, {}, [](uint64_t) {})) return common;
    common.initial = frames.state();
    common.usable = true;
    return common;
}

FunctionRange read_function_range(ByteCursor& cursor, const CommonEntry& common) {
    const auto start = cursor.pointer(common.pointer_encoding);
    const auto bytes = cursor.pointer(common.pointer_encoding & 0x0f);
    if (common.has_augmentation_size) cursor.skip(cursor.uleb());
    return start && bytes ? FunctionRange{*start, *bytes} : FunctionRange{};
}

bool run_frame_program(ByteCursor cursor, const CommonEntry& common, const FunctionRange& range, size_t max_rows,
                       std::vector<ingero_unwind_row>& ret_rows) {
    bool supported = true;
    const size_t first = ret_rows.size();
    FrameMachine frames(common, common.initial);
    const bool complete = frames.run(cursor, range.start, common.initial, [&](uint64_t address) {
        if (address - range.start >= range.bytes || ret_rows.size() - first >= max_rows) return;
        ret_rows.push_back(to_row(frames.state(), common, address, supported));
    });
    if (complete) return supported;
    // How far the latest row holds is not known.
    const uint32_t from = ret_rows.size() > first ? ret_rows.back().address : static_cast<uint32_t>(range.start);
    if (ret_rows.size() > first) ret_rows.pop_back();
    ret_rows.push_back({from, INGERO_UNWIND_NONE, 0, 0});
    return false;
}

}  // namespace ingero
