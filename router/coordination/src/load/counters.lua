-- Puts one router's share of kthena's counters right, and says what they hold then.
--
-- KEYS: the counters, the router's shares, the routers by when their lease ends.
-- ARGV: the router, its lease (ms), what the shares' keys begin with, then a field and its share, in turns.
-- Answers the total of each field, and how many were healed.
--
-- A share is set and not added, so a script that is sent twice, or whose answer is lost, does no harm.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function count(key, field)
  return tonumber(redis.call('HGET', key, field) or '0') or 0
end

-- What a router had in flight when it died is nobody's any more.
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 4)) do
  if dead ~= ARGV[1] then
    local shares = redis.call('HGETALL', ARGV[3] .. dead)
    for i = 1, #shares, 2 do
      local back = math.min(tonumber(shares[i + 1]) or 0, math.max(count(KEYS[1], shares[i]), 0))
      if back > 0 then redis.call('HINCRBY', KEYS[1], shares[i], -back) end
    end
    redis.call('DEL', ARGV[3] .. dead)
    redis.call('ZREM', KEYS[3], dead)
  end
end

local totals = {}
local healed = 0
for i = 4, #ARGV, 2 do
  local field, own = ARGV[i], tonumber(ARGV[i + 1])
  local before = count(KEYS[2], field)
  if own ~= before then
    local changed = redis.pcall('HINCRBY', KEYS[1], field, own - before)
    -- Not a number: nobody can count with it.
    if type(changed) == 'table' and changed.err then redis.call('HSET', KEYS[1], field, own) end
    if own == 0 then redis.call('HDEL', KEYS[2], field) else redis.call('HSET', KEYS[2], field, own) end
  end
  local total = count(KEYS[1], field)
  -- Never less than what we have there ourselves: somebody counted down twice, or removed the field.
  if total < own then
    redis.call('HSET', KEYS[1], field, own)
    total = own
    healed = healed + 1
  end
  totals[#totals + 1] = total
end

local lease = tonumber(ARGV[2])
if lease > 0 then redis.call('ZADD', KEYS[3], now + lease, ARGV[1]) else redis.call('ZREM', KEYS[3], ARGV[1]) end
return { totals, healed }
