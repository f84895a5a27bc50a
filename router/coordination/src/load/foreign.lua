-- Whether anybody but some routers has something in flight in kthena's counters: 1 or 0.
--
-- KEYS: the counters, then those routers' shares of them.
local ours = {}
for i = 2, #KEYS do
  local shares = redis.call('HGETALL', KEYS[i])
  for j = 1, #shares, 2 do ours[shares[j]] = (ours[shares[j]] or 0) + (tonumber(shares[j + 1]) or 0) end
end
local counts = redis.call('HGETALL', KEYS[1])
for i = 1, #counts, 2 do
  if (tonumber(counts[i + 1]) or 0) > (ours[counts[i]] or 0) then return 1 end
end
return 0
