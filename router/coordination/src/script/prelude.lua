local STORE, OWNERS, META, DELTAS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, WRITER = ARGV[1], ARGV[2]
-- Lua writes large numbers with an exponent; Redis wants digits.
local function whole(number) return string.format('%.0f', number) end
