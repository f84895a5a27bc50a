-- Puts one router's share of kthena's counters right (after clock.lua), and says what they hold then.
--
-- KEYS: the counters, the router's shares, the routers by when their lease ends, then the shares of routers that are
-- thought to be dead.
-- ARGV: the router, its lease (ms), how many dead ones and their names, then a field and its share, in turns.
-- Answers the total of each field, how many were healed, and a few routers whose lease has ended: their shares' keys
-- are in the caller's next call, for a script may touch only the keys it is given.
--
-- A share is set and not added, so a script that is sent twice, or whose answer is lost, does no harm.
local now = clock()
local counters, own_shares, routers = KEYS[1], KEYS[2], KEYS[3]

local function count(key, field)
  return tonumber(redis.call('HGET', key, field) or '0') or 0
end

-- What a router had in flight when it died is nobody's any more.
local dead = tonumber(ARGV[3])
for i = 1, dead do
  local name, key = ARGV[3 + i], KEYS[3 + i]
  local ended = tonumber(redis.call('ZSCORE', routers, name) or '')
  -- It may have come back since, or another one was faster.
  if ended and ended <= now then
    local shares = redis.call('HGETALL', key)
    for j = 1, #shares, 2 do
      local total = count(counters, shares[j])
      local back = math.min(tonumber(shares[j + 1]) or 0, math.max(total, 0))
      if back > 0 and back == total then
        redis.call('HDEL', counters, shares[j])
      elseif back > 0 then
        redis.call('HINCRBY', counters, shares[j], -back)
      end
    end
    redis.call('DEL', key)
    redis.call('ZREM', routers, name)
  end
end

local totals = {}
local healed = 0
for i = 4 + dead, #ARGV, 2 do
  local field, own = ARGV[i], tonumber(ARGV[i + 1])
  local before = count(own_shares, field)
  if own ~= before then
    local changed = redis.pcall('HINCRBY', counters, field, own - before)
    -- Not a number: nobody can count with it.
    if type(changed) == 'table' and changed.err then redis.call('HSET', counters, field, own) end
    if own == 0 then redis.call('HDEL', own_shares, field) else redis.call('HSET', own_shares, field, own) end
  end
  local total = count(counters, field)
  -- Never less than what we have there ourselves: somebody counted down twice, or removed the field.
  if total < own then
    redis.call('HSET', counters, field, own)
    total = own
    healed = healed + 1
  end
  -- A counter that is gone counts from 0 for everybody, and a hash without fields is gone too.
  if total == 0 then redis.call('HDEL', counters, field) end
  totals[#totals + 1] = total
end

local lease = tonumber(ARGV[2])
if lease > 0 then redis.call('ZADD', routers, now + lease, ARGV[1]) else redis.call('ZREM', routers, ARGV[1]) end
local ended = redis.call('ZRANGEBYSCORE', routers, '-inf', now, 'LIMIT', 0, 4)
return { totals, healed, ended }
