-- Trees (allocation and collection), strings, sorting with a Lua comparator, metatables, closures, coroutines,
-- and protected calls that fail in Lua and in C. Nothing depends on addresses, time or the order of tables.
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1) }
end
local function size(node)
  return node[1] and 1 + size(node[1]) + size(node[2]) or 1
end

local Vector = {}
Vector.__index = Vector
Vector.__add = function(a, b) return setmetatable({ x = a.x + b.x, y = a.y + b.y }, Vector) end
function Vector:square() return self.x * self.x + self.y * self.y end

local function numbers(last)
  return coroutine.wrap(function()
    for i = 1, last do coroutine.yield(i) end
    return nil
  end)
end

local nodes, failures, yielded = 0, 0, 0
for i = 1, N do
  nodes = nodes + size(tree(6))
  local words = {}
  for word in ("the quick brown fox jumps over the lazy dog " .. i):rep(4):gmatch("%w+") do
    words[#words + 1] = word:upper():reverse() .. i
  end
  table.sort(words, function(a, b) return a > b end)
  if i == N then print(table.concat(words, ","):gsub("A", "bb")) end
  local sum = setmetatable({ x = 0, y = 0 }, Vector)
  for k = 1, 50 do sum = sum + setmetatable({ x = k, y = -k }, Vector) end
  if i == N then print(sum:square()) end
  for k = 1, 20 do
    local ok, why = pcall(function()
      if k % 4 == 0 then error({ code = k }) end
      if k % 4 == 1 then return string.rep(nil, k) end
      if k % 4 == 2 then return pcall(error, "inner") end
    end)
    if not ok then failures = failures + 1 end
    if i == N and k == 5 then print(why) end
  end
  for value in numbers(20) do yielded = yielded + value end
end
print(nodes, failures, yielded)
local function last(n) return n end
local function through(n) return last(n) end
for i = 1, N do yielded = last(i) + through(i) end
print(yielded)
