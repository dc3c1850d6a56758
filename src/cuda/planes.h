#include "cuda/product/layout.h"
