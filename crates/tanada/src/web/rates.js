// What was asked between two looks at counters that only grow, per second; as the daemon's own samples have it.

const KINDS = { read: "read", write: "write", "write zeroes": "write" };

const quantile = (buckets, part) => {
  const sorted = [...buckets].sort((a, b) => a[0] - b[0]);
  const rank = Math.max(1, Math.ceil(part * sorted.reduce((sum, it) => sum + it[1], 0)));
  let below = 0;
  return sorted.find(it => (below += it[1]) >= rank)?.[0] ?? null;
};

// Both are `figures` of `/v1`. Nothing without both, or if no time went by.
export const ratesBetween = (earlier, later) => {
  const seconds = earlier && later ? (later.over_ns - earlier.over_ns) / 1e9 : 0;
  if (!(seconds > 0)) return null;
  const rates = { reads_per_second: 0, read_bytes_per_second: 0, writes_per_second: 0, write_bytes_per_second: 0 };
  const added = [];
  for (const now of later.operations) {
    const kind = KINDS[now.op];
    if (!kind) continue;
    const old = earlier.operations.find(it => it.op === now.op && it.class === now.class);
    rates[`${kind}s_per_second`] += (now.requests - (old?.requests ?? 0)) / seconds;
    rates[`${kind}_bytes_per_second`] += (now.bytes - (old?.bytes ?? 0)) / seconds;
    const before = new Map(old?.latency.buckets ?? []);
    for (const [bound, n] of now.latency.buckets) if (n > (before.get(bound) ?? 0)) added.push([bound, n - (before.get(bound) ?? 0)]);
  }
  return { ...rates, latency_ns_p50: quantile(added, 0.5), latency_ns_p99: quantile(added, 0.99) };
};
