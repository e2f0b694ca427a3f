// Registers as the unwinder numbers them.
#pragma once

// The one in which a landing pad gets the exception.
enum { RESULT_REGISTER = 0 };
