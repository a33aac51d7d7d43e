/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The few names of the kernel's BPF interface that are used, so that no kernel header is needed. */
#ifndef PERFLOSS_UAPI_H
#define PERFLOSS_UAPI_H

#include "layout.h"

typedef u8 __u8;
typedef u16 __u16;
typedef s16 __s16;
typedef u32 __u32;
typedef s32 __s32;
typedef u64 __u64;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

#define bool _Bool
#define true 1
#define false 0

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_F_USER_STACK = 1 << 8,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
	BPF_ANY = 0,
};

#endif
