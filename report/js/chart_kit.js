// What charts are made of: cards, axes, and drawings that Chart.js lacks.

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.defaults.font.size = 12;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.animation = false;
Chart.defaults.plugins.legend.display = false;
Object.assign(Chart.defaults.plugins.tooltip, { padding: 10, cornerRadius: 8, boxPadding: 4, usePointStyle: true });

const liveCharts = new Set();

/// A card with a title, the chart and its table.
function chartCard({ title, note, chart, columns, rows }) {
  const canvas = element("canvas", { role: "img", "aria-label": title });
  const plot = element("div", { class: "plot", style: `height:${chart.height}px` }, canvas);
  liveCharts.add(() => new Chart(canvas, chart.settings));
  return element(
    "div",
    { class: chart.height > 500 ? "card tall" : "card" },
    element("h3", {}, title),
    note ? element("p", { class: "note" }, note) : null,
    plot,
    columns ? foldedTable(columns, rows) : null,
  );
}

/// Charts are drawn once their canvases are in the page: before that they have no size.
function drawCharts() {
  for (const draw of liveCharts) draw();
  liveCharts.clear();
}

function clearCharts() {
  for (const chart of Object.values(Chart.instances)) chart.destroy();
  liveCharts.clear();
}

// Quartiles of points {x, y, low, high}.
const whiskers = {
  id: "whiskers",
  afterDatasetsDraw(chart) {
    const { ctx, scales } = chart;
    chart.data.datasets.forEach((dataset, index) => {
      if (!chart.isDatasetVisible(index)) return;
      ctx.save();
      ctx.strokeStyle = withAlpha(dataset.borderColor, 0.55);
      ctx.lineWidth = 1.5;
      for (const point of dataset.data.filter(({ low, high }) => low > 0 && high > low)) {
        const x = scales.x.getPixelForValue(point.x);
        ctx.beginPath();
        ctx.moveTo(x, scales.y.getPixelForValue(point.low));
        ctx.lineTo(x, scales.y.getPixelForValue(point.high));
        ctx.stroke();
      }
      ctx.restore();
    });
  },
};

// Words inside the cells of a map, where they fit.
const cellLabels = {
  id: "cellLabels",
  afterDatasetsDraw(chart) {
    const { ctx } = chart;
    ctx.save();
    Object.assign(ctx, {
      textAlign: "center",
      textBaseline: "middle",
      fillStyle: theme() === "dark" ? "#0e141b" : "#fff",
    });
    ctx.font = `600 12px ${Chart.defaults.font.family}`;
    chart.data.datasets.forEach((dataset, index) =>
      chart.getDatasetMeta(index).data.forEach((bar, place) => {
        const label = dataset.labels[place];
        if (!label || ctx.measureText(label).width > bar.width - 4) return;
        ctx.fillText(label, bar.x, (bar.y + bar.base) / 2);
      }),
    );
    ctx.restore();
  },
};

const axisTitle = (text) => ({ display: true, text, color: cssColour("--soft") });

// Decades only: the ticks between them would run into each other.
function logAxis(text, format) {
  const isDecade = (value) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
  return {
    type: "logarithmic",
    title: axisTitle(text),
    ticks: { callback: (value) => (isDecade(value) ? format(value) : null), maxRotation: 0 },
  };
}

const linearAxis = (text, format) => ({
  type: "linear",
  title: axisTitle(text),
  beginAtZero: true,
  ticks: { callback: format, maxRotation: 0 },
});

function lineSet(name, points, extra = {}) {
  const colour = colourOf(name);
  return {
    label: name,
    data: points,
    borderColor: colour,
    backgroundColor: cssColour("--card"),
    borderWidth: 2,
    pointRadius: 3.5,
    pointHoverRadius: 6,
    pointBorderWidth: 2,
    pointHitRadius: 12,
    borderDash: isDense(name) ? [5, 4] : [],
    tension: 0,
    ...extra,
  };
}
