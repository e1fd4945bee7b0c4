// Kinds of charts, as settings of Chart.js. Each gives {settings, height} for `chartCard`.

/// Lines over two axes; `tell(dataset, point)` gives the words of a hover.
function lineChart({ datasets, x, y, tell, heading, legend = false, height = 300 }) {
  return {
    height,
    settings: {
      type: "line",
      data: { datasets },
      plugins: [whiskers],
      options: {
        interaction: { mode: "nearest", intersect: false },
        scales: { x, y },
        plugins: {
          legend: legendIf(legend),
          tooltip: {
            callbacks: {
              title: (items) => items[0] && heading(items[0].raw),
              label: (item) => tell(item.dataset, item.raw),
            },
          },
        },
      },
    },
  };
}

const legendIf = (isShown) => ({
  display: isShown,
  position: "bottom",
  labels: { usePointStyle: true, pointStyle: "line", boxWidth: 24, color: cssColour("--ink") },
});

/// Horizontal bars; values of several datasets stack where `stacked`.
function barChart({ labels, datasets, x, tell, stacked = false, legend = false }) {
  const bars = labels.length * (stacked ? 1 : datasets.length);
  return {
    height: 62 + 8 * labels.length + 16 * bars + (legend ? 30 : 0),
    settings: {
      type: "bar",
      data: { labels, datasets },
      options: {
        indexAxis: "y",
        interaction: { mode: "nearest", axis: "y", intersect: false },
        scales: {
          x: { ...x, stacked },
          y: {
            stacked,
            grid: { display: false },
            ticks: {
              color: cssColour("--ink"),
              autoSkip: false,
              callback(value) {
                return shorten(this.getLabelForValue(value), this.chart.width < 420 ? 20 : 44);
              },
            },
          },
        },
        plugins: {
          legend: { ...legendIf(legend), labels: { boxWidth: 10, boxHeight: 10, color: cssColour("--ink") } },
          tooltip: { callbacks: { label: tell } },
        },
      },
    },
  };
}

const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const barSet = (label, values, colour) => ({
  label,
  data: values,
  backgroundColor: colour,
  borderRadius: 4,
  maxBarThickness: 18,
  barPercentage: 0.9,
  categoryPercentage: 0.8,
});

// One entry for each colour of a map.
function mapLegend(datasets) {
  const names = new Map(
    datasets
      .flatMap((dataset) => dataset.cells)
      .filter(Boolean)
      .map((cell) => [cell.name, cell.colour]),
  );
  return {
    display: true,
    position: "bottom",
    onClick: () => {},
    labels: {
      boxWidth: 10,
      boxHeight: 10,
      generateLabels: () =>
        [...names].map(([text, colour]) => ({
          text,
          fillStyle: colour,
          strokeStyle: colour,
          fontColor: cssColour("--ink"),
          lineWidth: 0,
        })),
    },
  };
}

/// A map of cells: columns × rows, each {name, colour, label, words} or null.
function mapChart({ columns, rows, cellOf, x, y }) {
  const datasets = rows.map((row) => {
    const cells = columns.map((column) => cellOf(column, row));
    return {
      label: row,
      cells,
      labels: cells.map((cell) => cell?.label),
      data: cells.map((cell) => (cell ? 1 : null)),
      clip: 4,
      backgroundColor: cells.map((cell) => cell?.colour ?? "#0000"),
      borderColor: cssColour("--card"),
      borderWidth: 1.5,
      borderSkipped: false,
      borderRadius: 5,
      barPercentage: 1,
      categoryPercentage: 1,
    };
  });
  return {
    height: 110 + 46 * rows.length,
    settings: {
      type: "bar",
      data: { labels: columns, datasets },
      plugins: [cellLabels],
      options: {
        interaction: { mode: "nearest", intersect: true },
        scales: {
          x: {
            stacked: true,
            grid: { display: false },
            title: axisTitle(x),
            ticks: { color: cssColour("--ink"), maxRotation: 0 },
          },
          y: {
            stacked: true,
            min: 0,
            max: rows.length,
            grid: { display: false },
            title: axisTitle(y),
            afterBuildTicks(axis) {
              axis.ticks = rows.map((_, index) => ({ value: index + 0.5 }));
            },
            ticks: { color: cssColour("--ink"), callback: (value) => rows[Math.floor(value)] },
          },
        },
        plugins: {
          legend: mapLegend(datasets),
          tooltip: { callbacks: { title: () => "", label: (item) => item.dataset.cells[item.dataIndex].words } },
        },
      },
    },
  };
}
