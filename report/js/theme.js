// Light and dark: the system's wish until the button is pressed. Charts read their colours from here.

const PALETTE = {
  light: [
    "#0b62d6",
    "#0a8f7a",
    "#7a3ff2",
    "#c2410c",
    "#b7791f",
    "#c0267e",
    "#4d7c0f",
    "#0e7490",
    "#9f1239",
    "#6d5f00",
    "#5b21b6",
    "#15803d",
  ],
  dark: [
    "#6cb0ff",
    "#3fd6bb",
    "#b794ff",
    "#ff9d66",
    "#f2c14e",
    "#ff8ac9",
    "#a3d65c",
    "#5fd0ea",
    "#ff8fa3",
    "#d9cf5f",
    "#c4b5fd",
    "#5fdd8f",
  ],
};

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;

const theme = () => chosenTheme ?? (systemIsDark.matches ? "dark" : "light");
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const withAlpha = (colour, alpha) =>
  colour +
  Math.round(alpha * 255)
    .toString(16)
    .padStart(2, "0");

// Sparse rows first, so that they get the calm end of the palette whatever the order of the files.
const colourOrder = distinct(
  allRows.filter((row) => row.kind === "allreduce"),
  "algorithm",
)
  .sort((left, right) => isDense(left) - isDense(right) || left.localeCompare(right))
  .filter((algorithm) => algorithm !== "auto" && algorithm !== "mpi_native");

/// The colour of a name, the same in every chart.
function colourOf(name) {
  if (name === "auto") return cssColour("--ink");
  if (name === "mpi_native") return cssColour("--soft");
  if (!colourOrder.includes(name)) colourOrder.push(name);
  const palette = PALETTE[theme()];
  return palette[colourOrder.indexOf(name) % palette.length];
}

function applyTheme() {
  document.documentElement.dataset.theme = theme();
  Chart.defaults.color = cssColour("--soft");
  Chart.defaults.borderColor = cssColour("--grid");
}

function watchTheme(render) {
  const change = () => {
    applyTheme();
    render();
  };
  systemIsDark.addEventListener("change", change);
  document.getElementById("theme").addEventListener("click", () => {
    chosenTheme = theme() === "dark" ? "light" : "dark";
    change();
  });
}
