-- id... -> a value for each job that differs after every change
local versions = {}
for index, id in ipairs(ARGV) do
  local field = redis.call('HMGET', job_key(id), 'state', 'called_off', 'last')
  local state = not field[1] and 'unknown' or is_over(field[1]) and field[1] or 'open'
  versions[index] = state .. ' ' .. (field[2] or '') .. ' ' .. (field[3] or '')
end
return versions
