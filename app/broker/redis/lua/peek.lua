-- id... -> of each what is another whenever there is news of it
local signs = {}
for place, id in ipairs(ARGV) do
  local field = redis.call('HMGET', job_key(id), 'state', 'called_off', 'last')
  local state = not field[1] and 'unknown' or is_over(field[1]) and field[1] or 'open'
  signs[place] = state .. ' ' .. (field[2] or '') .. ' ' .. (field[3] or '')
end
return signs
