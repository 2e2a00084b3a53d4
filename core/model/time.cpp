#include "core/model/time.h"
