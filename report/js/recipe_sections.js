// Sections about recipes: whole training steps beside dense ones, and where the time of logged steps goes.

const recipePlace = (row) =>
  [row.shapes, `P = ${row.ranks}`, row.network, row.back_propagation_seconds > 0 && "with back-propagation"]
    .filter(Boolean)
    .join(" · ");

const recipeColumns = [
  { title: "recipe", kind: "text", value: (row) => row.recipe },
  { title: "time of dense", value: (row) => row.ratio, format: formatTimes },
  { title: "median", value: (row) => row.seconds_median, format: formatSeconds },
  { title: "q1", value: (row) => row.seconds_q1, format: formatSeconds },
  { title: "q3", value: (row) => row.seconds_q3, format: formatSeconds },
  { title: "exposed", value: (row) => row.exposed_seconds, format: formatSeconds },
  { title: "sent, a rank", value: (row) => row.bytes_sent_max, format: formatBytes },
  { title: "at link speed", value: (row) => row.link_seconds, format: (value) => (value == null ? "–" : formatSeconds(value)) },
  { title: "delivered", value: (row) => row.density, format: formatShare },
  { title: "every", value: (row) => row.every },
  { title: "check", kind: "text", value: (row) => (row.verified === false ? (row.failure ?? "failed") : "OK") },
];

function recipeCard(title, rows) {
  const sorted = [...rows].sort(byNumber("ratio"));
  return chartCard({
    title,
    rows: sorted,
    chart: barChart({
      labels: sorted.map((row) => row.recipe),
      x: linearAxis("times a dense step", formatTimes),
      datasets: [barSet("ratio", sorted.map((row) => row.ratio), cssColour("--accent"))],
      tell: (item) => [
        formatTimes(sorted[item.dataIndex].ratio),
        `median ${formatSeconds(sorted[item.dataIndex].seconds_median)}`,
        `sent ${formatBytes(sorted[item.dataIndex].bytes_sent_max)}`,
      ],
    }),
    columns: recipeColumns,
  });
}

function recipeSection() {
  const rows = filtered(rowsOf("gradient")).filter((row) => row.verified !== false && row.ratio > 0);
  return {
    id: "recipes",
    title: "Recipes",
    about: "Whole training steps of a model's parameters, beside a dense step in the same turn. Less is faster.",
    cards: [...groupBy(rows, recipePlace)].map(([title, own]) => recipeCard(title, own)),
    command: "mpirun -n 4 build/release/bin/tulle bench gradient --shapes vgg16 --json results/recipes.jsonl",
  };
}

// The stages of a step on rank 0, without what computing hides.
const STAGES = ["accumulate", "select", "encode", "wait", "decode", "mask", "apply"];

/// The mean over the logged steps of a recipe of what all parameters together took in each stage.
function stagesOf([recipe, steps]) {
  const seconds = (stage) =>
    steps.flatMap((step) => step.parameters).reduce((sum, each) => sum + (each[`${stage}_seconds`] ?? 0), 0);
  return {
    recipe,
    steps: steps.length,
    ...Object.fromEntries(STAGES.map((stage) => [stage, seconds(stage) / steps.length])),
  };
}

function stagesCard(title, bars) {
  const palette = PALETTE[theme()];
  return chartCard({
    title,
    rows: bars,
    chart: barChart({
      labels: bars.map((bar) => bar.recipe),
      stacked: true,
      legend: true,
      x: linearAxis("time of a step", formatSeconds),
      datasets: STAGES.map((stage, place) =>
        barSet(
          stage,
          bars.map((bar) => bar[stage]),
          palette[place % palette.length],
        ),
      ),
      tell: (item) => `${item.dataset.label}: ${formatSeconds(item.raw)}`,
    }),
    columns: [
      { title: "recipe", kind: "text", value: (bar) => bar.recipe },
      { title: "steps", value: (bar) => bar.steps },
      ...STAGES.map((stage) => ({ title: stage, value: (bar) => bar[stage], format: formatSeconds })),
    ],
  });
}

function stagesSection() {
  const steps = filtered(rowsOf("stats")).filter((row) => row.recipe && row.parameters?.length);
  const places = groupBy(steps, (row) => `${formatNumber(row.values)} values · P = ${row.ranks}`);
  return {
    id: "stages",
    title: "Where steps of recipes spend their time",
    about: "Means over logged steps on rank 0: computing by stage, and waiting for exchanges that nothing hid.",
    cards: [...places].map(([title, own]) => stagesCard(title, [...groupBy(own, "recipe")].map(stagesOf))),
    command: "mpirun -n 4 build/release/bin/tulle bench gradient --steps results/steps.jsonl",
  };
}
