/* SPDX-License-Identifier: GPL-2.0 */
/* What find_real_file is asked for: its answer has 32 bits. */
#ifndef INGERO_REAL_FILE_PART_H
#define INGERO_REAL_FILE_PART_H

#define INGERO_REAL_FILE_DEVICE 0
#define INGERO_REAL_FILE_INODE_LOW 1
#define INGERO_REAL_FILE_INODE_HIGH 2

#endif
