// Lays two JSON values side by side: a list of rows, each with a line of the left and of the right and a mark.
//
// A row is {mark, left, right}: `mark` is "same", "changed", "left" (only there) or "right". A line is
// {depth, key, text, kind, comma} or null. Members are matched by name (the first with the first of that name), items
// of a list by what they hold, then by their `name`, `uri` or `id`, then by place.

import {isSame, member} from "./json.js";

// Items of a list that are compared each with each. Longer lists are matched by place: the work grows with the square.
const ALIGNED_MAX = 400;

// Returns the rows of two values, of which one may be null.
export const compare = (left, right) => {
  const rows = [];
  walk(rows, left, right, 0, null, null, false, false);
  return rows;
};

export const countDifferences = rows => {
  let count = 0;
  let inside = "same"; // lines of one mark that follow each other are one difference
  for (const row of rows) {
    if (row.mark !== "same" && (row.mark !== inside || row.mark === "changed")) count++;
    inside = row.mark;
  }
  return count;
};

const isNested = value => value.kind === "object" || value.kind === "array";
const parts = value => (value.kind === "object" ? value.members : value.items.map(item => ({key: null, value: item})));
const opening = value => (value.kind === "object" ? "{" : "[");
const closing = value => (value.kind === "object" ? "}" : "]");
const isEmpty = value => parts(value).length === 0;

const line = (depth, key, text, kind, comma) => ({depth, key, text, kind, comma});
const whole = (value, depth, key, comma) =>
  isNested(value)
    ? line(depth, key, opening(value) + closing(value), "sign", comma)
    : line(depth, key, value.raw, value.kind, comma);

const walk = (rows, left, right, depth, leftKey, rightKey, leftComma, rightComma) => {
  if (!left || !right) {
    const side = left ? "left" : "right";
    alone(rows, left ?? right, side, depth, left ? leftKey : rightKey, left ? leftComma : rightComma);
    return;
  }
  const opensBoth = isNested(left) && left.kind === right.kind && !isEmpty(left) && !isEmpty(right);
  if (opensBoth) {
    rows.push({mark: "same", left: line(depth, leftKey, opening(left), "sign", false), right: line(depth, rightKey, opening(right), "sign", false)});
    const [lefts, rights] = [parts(left), parts(right)];
    for (const [i, j] of left.kind === "object" ? matchMembers(lefts, rights) : matchItems(lefts, rights)) {
      const [one, other] = [lefts[i], rights[j]];
      walk(rows, one?.value, other?.value, depth + 1, one?.key, other?.key, i < lefts.length - 1, j < rights.length - 1);
    }
    rows.push({mark: "same", left: line(depth, null, closing(left), "sign", leftComma), right: line(depth, null, closing(right), "sign", rightComma)});
  } else if (isShort(left) && isShort(right)) {
    rows.push({mark: isSame(left, right) ? "same" : "changed", left: whole(left, depth, leftKey, leftComma), right: whole(right, depth, rightKey, rightComma)});
  } else {
    alone(rows, left, "left", depth, leftKey, leftComma);
    alone(rows, right, "right", depth, rightKey, rightComma);
  }
};

const isShort = value => !isNested(value) || isEmpty(value);

const alone = (rows, value, side, depth, key, comma) => {
  const push = made => rows.push({mark: side, left: side === "left" ? made : null, right: side === "right" ? made : null});
  if (isShort(value)) return void push(whole(value, depth, key, comma));
  push(line(depth, key, opening(value), "sign", false));
  const inner = parts(value);
  inner.forEach((part, i) => alone(rows, part.value, side, depth + 1, part.key, i < inner.length - 1));
  push(line(depth, null, closing(value), "sign", comma));
};

// Yields pairs of places; a place of -1 … stands for nothing, as an index that no list has.
const matchMembers = (lefts, rights) => {
  const byKey = new Map();
  rights.forEach(({key}, j) => byKey.set(key, [...(byKey.get(key) ?? []), j]));
  const partner = lefts.map(({key}) => byKey.get(key)?.shift() ?? -1);
  return inOrder(partner, rights.length);
};

const nameOf = value => {
  for (const name of ["name", "uri", "uriTemplate", "id"]) {
    const found = member(value, name);
    if (found) return name + found.raw;
  }
  return null;
};

const matchItems = (lefts, rights) => {
  if (lefts.length > ALIGNED_MAX || rights.length > ALIGNED_MAX) {
    return inOrder(lefts.map((_, i) => (i < rights.length ? i : -1)), rights.length);
  }
  const names = [lefts, rights].map(list => list.map(({value}) => nameOf(value)));
  const isPair = (i, j) =>
    names[0][i] !== null || names[1][j] !== null ? names[0][i] === names[1][j] : isSame(lefts[i].value, rights[j].value);
  const partner = longestCommon(lefts.length, rights.length, isPair);
  fillGaps(partner, rights.length, names);
  return inOrder(partner, rights.length);
};

// Returns for each place of the left the one of the right, or -1: the longest common subsequence.
const longestCommon = (n, m, isPair) => {
  const partner = new Array(n).fill(-1);
  let from = 0;
  while (from < n && from < m && isPair(from, from)) partner[from] = from++;
  const width = m - from + 1;
  const lengths = new Uint16Array((n - from + 1) * width);
  const pairs = new Uint8Array((n - from + 1) * width);
  for (let i = n - 1; i >= from; i--) {
    for (let j = m - 1; j >= from; j--) {
      const at = (i - from) * width + (j - from);
      if (isPair(i, j)) (pairs[at] = 1), (lengths[at] = lengths[at + width + 1] + 1);
      else lengths[at] = Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  for (let i = from, j = from; i < n && j < m; ) {
    const at = (i - from) * width + (j - from);
    if (pairs[at]) partner[i++] = j++;
    else if (lengths[at + width] >= lengths[at + 1]) i++;
    else j++;
  }
  return partner;
};

// Items without a name that are left over between two pairs are pairs too: one was changed into the other.
const fillGaps = (partner, m, names) => {
  let j = 0;
  for (let i = 0; i < partner.length; i++) {
    if (partner[i] >= 0) {
      j = partner[i] + 1;
      continue;
    }
    const next = partner.slice(i).find(each => each >= 0) ?? m;
    if (j < next && names[0][i] === null && names[1][j] === null) partner[i] = j++;
  }
};

// Turns partners into pairs in an order that keeps the right in its order wherever the left allows.
const inOrder = (partner, m) => {
  const taken = new Set(partner);
  const pairs = [];
  let next = 0;
  const flush = until => {
    for (; next < until; next++) if (!taken.has(next)) pairs.push([-1, next]);
  };
  partner.forEach((j, i) => {
    if (j >= 0) flush(j);
    pairs.push([i, j]);
  });
  flush(m);
  return pairs;
};
