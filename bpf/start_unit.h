/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef INGERO_START_UNIT_H
#define INGERO_START_UNIT_H

/* Of a process's start, as /proc/PID/stat has it: USER_HZ. By it everyone else names a process's start. */
#define INGERO_START_UNIT_NS 10000000

#endif
